#!/usr/bin/env bash
# Denoise between two runs of ffmpeg without a file between: the first halves the size,
# the second encodes the restored frames and takes the sound from the source.
#
#   examples/through_a_pipe.sh IN OUT [options of `vidrestore denoise`]
set -euo pipefail

source=${1:?film to restore}
output=${2:?film to write}
shift 2

ffmpeg -nostdin -loglevel error -i "$source" -map 0:v:0 -vf scale=iw/2:ih/2 -f yuv4mpegpipe -strict -1 - |
    vidrestore denoise - --output - --quiet "$@" |
    ffmpeg -loglevel error -i - -i "$source" -map 0:v -map '1:a?' -c:v libx264 -crf 16 -c:a copy "$output"
