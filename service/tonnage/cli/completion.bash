# bash completion of tonnage; made by `tonnage completion bash`
_tonnage_words() {
    local words=
    case "$1" in
#COMMANDS#
    esac
    printf '%s' "$words"
}

_tonnage_values() {
    local words=
    case "$1" in
#VALUES#
    esac
    printf '%s' "$words"
}

_tonnage() {
    local line="${COMP_LINE:0:COMP_POINT}" current name command values
    local -a typed
    COMPREPLY=()
    read -ra typed <<<"$line"
    case "$line" in *[[:space:]]) typed+=("") ;; esac
    current="${typed[${#typed[@]} - 1]}"
    command="${typed[1]}"
    [ "$command" = catalog ] && [ ${#typed[@]} -gt 3 ] && command="catalog ${typed[2]}"
    [ ${#typed[@]} -le 2 ] && command=
    if [[ "$current" == *=* ]]; then
        name="${current%%=*}"
    else
        name="${typed[${#typed[@]} - 2]}"
        case "$name" in --*) ;; *) name= ;; esac
    fi
    name="${name#--}"
    values="$(_tonnage_values "${name//-/_}")"
    local value="${current#*=}" last="${COMP_WORDS[COMP_CWORD]}"
    [ "$last" = "=" ] && last=
    if [ -n "$values" ]; then
        # readline breaks words at = and :, so only what follows the last break is replaced
        local prefix="${value%"$last"}" entry
        for entry in $(compgen -W "$values" -- "$value"); do COMPREPLY+=("${entry#"$prefix"}"); done
    else
        mapfile -t COMPREPLY < <(compgen -W "$(_tonnage_words "$command")" -- "$current")
        case "$current" in --* | *=*) ;; *) [ -n "$command" ] && [ "$command" != catalog ] && mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$current") ;; esac
    fi
    case "${COMPREPLY[0]}" in *=) compopt -o nospace 2>/dev/null ;; esac
}

complete -F _tonnage tonnage
