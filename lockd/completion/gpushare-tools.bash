# SPDX-License-Identifier: Apache-2.0
# bash completion of gpushare-patch and gpushare-lockd: the options that their --help lists, else files
_gpushare_tool() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} options
    COMPREPLY=()
    case $before in
    --tree | --venv)
        mapfile -t COMPREPLY < <(compgen -d -- "$word")
        return
        ;;
    --scope)
        mapfile -t COMPREPLY < <(compgen -W "process object" -- "$word")
        return
        ;;
    esac
    if [[ $word == -* ]]; then
        options=$("$1" --help 2>/dev/null | grep -oE '^ +(-[a-zA-Z], )?--[a-z-]+' | grep -oE -- '--?[a-zA-Z][a-z-]*')
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
}
complete -o filenames -F _gpushare_tool gpushare-patch gpushare-lockd
