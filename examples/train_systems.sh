#!/usr/bin/env bash
# Train the systems of examples/train/systems at every rate and noise level of the DUST paper, and its ablations: 171 runs, which take a
# CPU core three and a half days. What is done is left out, so it can be stopped and run again.
#
#   examples/train_systems.sh OUTPUT table|plateau|table4|all|sensing|denoising|noisy-sensing|ablations [SYSTEM...]
#
# SYSTEM is sista-rnn, vit, ...; without any, all of them (ablations: those the paper has). $TRAIN is the command, `vidrestore train` unless
# set. `table` is the two of each system that weights/README.md compares: six hours. Configurations with the
# values changed are written to OUTPUT. `plateau` is the fair form of its first half: each system at rate 0.2 by the
# paper's schedule (its rate, times 0.3 after five validations without gain, single precision, no average of weights)
# instead of equal minutes. $STEPS is the length, 135100 as in the paper unless set, and $EPOCH the steps from one
# validation to the next (1351). OUTPUT is another folder than that of `table`; systems_table.py prints both.
# `table4` is Table IV as the paper trains it: every rate on the set $SET (avenue, ucsd or shanghaitech) in the folder $DATA, by
# the recipe ../dust-$SET-cs20.toml with the system's network and rate. Then, with the runs of that set:
#   vidrestore eval --suite dust-table4 --data DATA --sets avenue $(printf -- '--weights %s ' OUTPUT/*-avenue-cs?0.safetensors)
set -euo pipefail

output=${1:?folder for weights}
what=${2:?table, plateau, table4, all, sensing, denoising, noisy-sensing or ablations}
shift 2
recipes=$(cd "$(dirname "$0")/train/systems" && pwd)
read -ra train <<<"${TRAIN:-vidrestore train}"
case $what in
table | plateau | table4 | all | sensing | denoising | noisy-sensing | ablations) ;;
*) echo "train_systems.sh: no $what; there are table, plateau, table4, all, sensing, denoising, noisy-sensing and ablations" >&2 && exit 2 ;;
esac
systems=("$@")
if [ ${#systems[@]} = 0 ]; then
    for recipe in "$recipes"/*-cs20.toml; do systems+=("$(basename "$recipe" -cs20.toml)"); done
fi
for system in "${systems[@]}"; do
    [ -e "$recipes/$system-cs20.toml" ] || { echo "train_systems.sh: no system $system; there are: $(cd "$recipes" && echo *-cs20.toml | sed s/-cs20.toml//g)" >&2 && exit 2; }
done
mkdir -p "$output"

# run NAME RECIPE [SED EXPRESSION...]: the recipe under another name with some lines changed
run() {
    local name=$1 recipe=$2 edits=(-e "s|\"\.\./|\"$recipes/../|") edit
    shift 2
    for edit; do edits+=(-e "$edit"); done
    sed "${edits[@]}" -e "s|^name = .*|name = \"$name\"|" "$recipes/$recipe.toml" >"$output/$name.toml"
    train_missing "$name"
}

# train_missing NAME [OPTION...]: train by OUTPUT/NAME.toml unless that is done
train_missing() {
    local name=$1
    shift
    [ -e "$output/$name.safetensors" ] || "${train[@]}" --config "$output/$name.toml" --output "$output" --resume "$@"
}

sensing() {
    local rate=1 measurements
    for measurements in 26 51 77 102 128; do
        run "$1-cs${rate}0" "$1-cs20" "s/^measurements = .*/measurements = $measurements/"
        rate=$((rate + 1))
    done
}

denoising() {
    local sigma
    for sigma in 10 20 50 100; do
        run "$1-denoise$sigma" "$1-denoise20" "s/^sigma = .*/sigma = [$sigma.0]/" "s/^lambda1 = .*/lambda1 = $((sigma * 6 / 10)).0/" \
            "s/^lambda2 = .*/lambda2 = $((sigma * 2 / 10)).0/"
    done
}

plateau() {
    run "$1-cs20" "$1-cs20" '/^precision = /d' "s/^steps = .*/steps = ${STEPS:-135100}/" \
        "s/^validate_every = .*/validate_every = ${EPOCH:-1351}\nschedule = \"plateau\"\nwarmup = 0\nbetas = [0.9, 0.999]\nprecision = \"fp32\"\naverage = 0.0/"
}

table4() {
    local set=${SET:-avenue} rate=1 measurements name
    case $1 in sista | algorithm1) return ;; esac # not in the table
    for measurements in 26 51 77 102 128; do
        name=$1-$set-cs${rate}0
        { sed '/^\[data\]/,$d' "$recipes/$1-cs20.toml"; sed -n '/^\[data\]/,$p' "$recipes/../dust-$set-cs20.toml"; } |
            sed -e "s|^name = .*|name = \"$name\"|" -e "s/^measurements = .*/measurements = $measurements/" \
                -e "s/^learning_rate = .*/$(grep '^learning_rate = ' "$recipes/$1-cs20.toml")/" >"$output/$name.toml"
        train_missing "$name" --data "${DATA:?folder of the set}"
        rate=$((rate + 1))
    done
}

noisy_sensing() {
    local sigma
    for sigma in 10 20 50 100; do run "$1-cs20-noise$sigma" "$1-cs20" "s/^sigma = .*/sigma = [$sigma.0]/"; done
}

ablations() {
    local task heads
    for task in cs20 denoise20; do
        for heads in 2 6 8; do run "printed-mh$heads-dust-$task" "printed-mh-dust-$task" "s/^heads = .*/heads = $heads/"; done # Table III
        run "printed-dust-f-$task" "printed-dust-$task" "s/^kind = .*/&\ncorrelation = true/"                             # Table X
        run "printed-mh-dust-f-$task" "printed-mh-dust-$task" "s/^kind = .*/&\ncorrelation = true/"
    done
    local count
    for count in 1 2 4 5 6; do # Fig. 2
        run "printed-dust-$count-layers-cs20" printed-dust-cs20 "s/^kind = .*/&\nblocks = $count/"
        run "sista-rnn-$count-layers-cs20" sista-rnn-cs20 "s/^measurements = .*/&\nlayers = $count/"
    done
    for count in 5 10 20 50 100 200 500; do
        run "algorithm1-$count-cs20" algorithm1-cs20 "/^iterations = /d" "s/^measurements = .*/&\niterations = $count/"
        run "sista-$count-cs20" sista-cs20 "/^layers = /d" "s/^measurements = .*/&\nlayers = $count/"
    done
    local values name # Table I: one value each
    for values in "lambda1 0.01" "lambda1 0.03" "lambda1 0.3" "lambda1 1.0" "lambda1 3.0" "lambda1 10.0" \
        "lambda2 0.05" "lambda2 0.1" "lambda2 0.2" "lambda2 0.6" "lambda2 0.8" "lambda2 1.0" \
        "c 0.1" "c 0.5" "c 1.5" "c 2.0" "c 3.0" "c 4.0"; do
        name=${values/ /-}
        run "printed-dust-${name/./-}-cs20" printed-dust-cs20 "s/^kind = .*/&\n${values/ / = }/"
    done
    run "printed-dust-weighted-cs20" printed-dust-cs20 "s/^kind = .*/&\nnormalise = false/" # Table II
    run "unfolded-transformer-weighted-cs20" unfolded-transformer-cs20 "s/^measurements = .*/&\nnormalise = false/"
}

for system in "${systems[@]}"; do
    case $what in table) for task in cs20 denoise20; do run "$system-$task" "$system-$task"; done ;; esac
    case $what in plateau) plateau "$system" ;; esac
    case $what in table4) table4 "$system" ;; esac
    case $what in sensing | all) sensing "$system" ;; esac
    case $what in denoising | all) denoising "$system" ;; esac
    case $what in noisy-sensing | all) noisy_sensing "$system" ;; esac
done
case $what in ablations | all) ablations ;; esac
