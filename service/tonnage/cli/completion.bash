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

_tonnage_files() {
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$1")
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
    name="${name#--}" name="${name//-/_}"
    values="$(_tonnage_values "$command $name")"
    values="${values:-$(_tonnage_values "$name")}"
    local value="${current#*=}" last="${COMP_WORDS[COMP_CWORD]}"
    [ "$last" = "=" ] && last=
    if [ "$values" = @files ]; then
        _tonnage_files "$current"
    elif [ -n "$values" ]; then
        # readline breaks words at = and :, so only what follows the last break is replaced
        local prefix="${value%"$last"}" entry
        for entry in $(compgen -W "$values" -- "$value"); do COMPREPLY+=("${entry#"$prefix"}"); done
    else
        local words="$(_tonnage_words "$command")" named="$(_tonnage_values "$command positional")"
        case "$current$named" in
            *@files) _tonnage_files "$current" ;;
            ?*) [ -n "$current" ] && words+=" $named" ;;
        esac
        mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -W "$words" -- "$current")
    fi
    case "${COMPREPLY[0]}" in *=) compopt -o nospace 2>/dev/null ;; esac
}

complete -F _tonnage tonnage
