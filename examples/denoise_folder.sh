#!/usr/bin/env bash
# Denoise the films of a folder into another folder. Run it again after an interruption or with new films: what is done is left out.
#
#   examples/denoise_folder.sh FILMS RESTORED [options of `vidrestore denoise`]
set -uo pipefail

films=${1:?folder of films}
restored=${2:?folder for the restored films}
shift 2

vidrestore denoise "$films" --output "$restored/" --quiet "$@"
status=$?
case $status in
    0) echo "all done: $restored" ;;
    3) echo "some films could not be restored; the messages above say which and why" >&2 ;;
    4) echo "all done, but some sources are damaged; the messages above say where" >&2 ;;
    130) echo "interrupted; run the same command again to go on" >&2 ;;
esac
exit $status
