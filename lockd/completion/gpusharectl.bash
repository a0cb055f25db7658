# SPDX-License-Identifier: Apache-2.0
# bash completion of gpusharectl
_gpusharectl_pids() {
    gpusharectl status --json 2>/dev/null | sed -n 's/^ *"pid": \([0-9]*\),$/\1/p' | tail -n +2 | sort -un
}

_gpusharectl() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command="" name="" i
    local settings="quantum quantum-min quantum-max switch-share idle policy exclusive reserve host weight priority limit"
    COMPREPLY=()
    case $before in
    --socket | -o | --output)
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        return
        ;;
    esac
    for ((i = 1; i < COMP_CWORD; i++)); do
        [[ ${COMP_WORDS[i]} == -* || ${COMP_WORDS[i - 1]} == --socket ]] && continue
        if [[ -z $command ]]; then command=${COMP_WORDS[i]}; else name=${COMP_WORDS[i]}; break; fi
    done
    local choices=""
    case $command in
    "") choices="status top set pause resume evict suspend reload trace metrics doctor --socket --help --version" ;;
    status) choices="--json --watch" ;;
    top) choices="--interval --json --count" ;;
    pause | resume | evict) choices="--json all $(_gpusharectl_pids)" ;;
    suspend) choices="--json $(_gpusharectl_pids)" ;;
    reload) choices="--json" ;;
    trace) choices="--json --seconds --output" ;;
    metrics) choices="--json --listen" ;;
    doctor)
        choices="--json $(_gpusharectl_pids)"
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        ;;
    set)
        case $name in
        "") choices="--json --help $settings" ;;
        policy) choices="fair fifo rr priority" ;;
        exclusive) choices="yes no" ;;
        weight | priority | limit) [[ $before == "$name" ]] && choices=$(_gpusharectl_pids) ;;
        *) choices="auto" ;;
        esac
        ;;
    esac
    mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -W "$choices" -- "$word")
}
complete -F _gpusharectl gpusharectl
