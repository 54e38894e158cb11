#!/usr/bin/env bash
# Denoise between two runs of ffmpeg without a file between: the first halves the size (to even sides, as H.264 wants them), the second
# encodes the restored frames and takes the sound from the source. A pipe has no colour tags, so they are set anew to the source's.
#
#   examples/through_a_pipe.sh IN OUT [options of `vidrestore denoise`]
set -euo pipefail

source=${1:?film to restore}
output=${2:?film to write}
shift 2

# tag KEY NAME: what the source says of its colour, for ffmpeg's filter that changes tags and no pixels
tag() {
    local value
    value=$(ffprobe -v error -select_streams v:0 -show_entries "stream=$1" -of default=nokey=1:noprint_wrappers=1 "$source" | head -n 1)
    case $value in '' | unknown | reserved | gbr | N/A) ;; *) tags+=":$2=$value" ;; esac
}
tags=range=-1 # as it is in the pipe
tag color_space colorspace
tag color_primaries color_primaries
tag color_transfer color_trc

ffmpeg -nostdin -loglevel error -i "$source" -map 0:v:0 -vf 'scale=trunc(iw/4)*2:trunc(ih/4)*2' -f yuv4mpegpipe -strict -1 - |
    vidrestore denoise - --output - --quiet "$@" |
    ffmpeg -loglevel error -i - -i "$source" -map 0:v -map '1:a?' -vf "setparams=$tags" -c:v libx264 -crf 16 -c:a copy "$output"
