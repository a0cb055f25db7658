# SPDX-License-Identifier: Apache-2.0
# fish completion of gpusharectl
set -l commands status top set pause resume evict suspend reload trace metrics doctor
set -l settings quantum quantum-min quantum-max switch-share idle policy exclusive reserve host weight priority limit
function __gpusharectl_pids
    gpusharectl status --json 2>/dev/null | string match -rg '^ *"pid": ([0-9]+),$' | tail -n +2 | sort -un
end
complete -c gpusharectl -f
complete -c gpusharectl -l socket -r -F -d "the daemon's socket"
complete -c gpusharectl -l help -d "what there is to say"
complete -c gpusharectl -l version -d "the release"
complete -c gpusharectl -n "not __fish_seen_subcommand_from $commands" -a "$commands"
complete -c gpusharectl -n "__fish_seen_subcommand_from $commands" -l json
complete -c gpusharectl -n "__fish_seen_subcommand_from status" -l watch
complete -c gpusharectl -n "__fish_seen_subcommand_from top" -l interval -r
complete -c gpusharectl -n "__fish_seen_subcommand_from top" -l count -r
complete -c gpusharectl -n "__fish_seen_subcommand_from trace" -l seconds -r
complete -c gpusharectl -n "__fish_seen_subcommand_from trace" -s o -l output -r -F
complete -c gpusharectl -n "__fish_seen_subcommand_from metrics" -l listen -r
complete -c gpusharectl -n "__fish_seen_subcommand_from pause resume evict" -a "all"
complete -c gpusharectl -n "__fish_seen_subcommand_from pause resume evict suspend doctor" -a "(__gpusharectl_pids)"
complete -c gpusharectl -n "__fish_seen_subcommand_from doctor" -F
complete -c gpusharectl -n "__fish_seen_subcommand_from set; and not __fish_seen_subcommand_from $settings" -a "$settings"
complete -c gpusharectl -n "__fish_seen_subcommand_from policy" -a "fair fifo rr priority"
complete -c gpusharectl -n "__fish_seen_subcommand_from exclusive" -a "yes no"
complete -c gpusharectl -n "__fish_seen_subcommand_from quantum quantum-min quantum-max switch-share idle reserve host limit" -a "auto"
complete -c gpusharectl -n "__fish_seen_subcommand_from weight priority limit" -a "(__gpusharectl_pids)"
