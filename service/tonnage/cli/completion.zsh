#compdef tonnage
# zsh completion of tonnage; made by `tonnage completion zsh`
_tonnage_words() {
    local words=
    case "$1" in
#COMMANDS#
    esac
    print -r -- "$words"
}

_tonnage_values() {
    local words=
    case "$1" in
#VALUES#
    esac
    print -r -- "$words"
}

_tonnage() {
    local current="${words[CURRENT]}" command="" name="" known
    (( CURRENT > 2 )) && command="${words[2]}"
    [[ "$command" == catalog ]] && (( CURRENT > 3 )) && command="catalog ${words[3]}"
    if [[ "$current" == *=* ]]; then
        name="${current%%=*}"
    elif [[ "${words[CURRENT-1]}" == --* ]]; then
        name="${words[CURRENT-1]#--}"
    fi
    known="$(_tonnage_values "$command ${name//-/_}")"
    known="${known:-$(_tonnage_values "${name//-/_}")}"
    if [[ "$known" == @files ]]; then
        _files
    elif [[ -n "$known" && "$current" == *=* ]]; then
        compset -P '*='
        compadd -- ${=known}
    elif [[ -n "$known" ]]; then
        compadd -- ${=known}
    else
        local -a all fields
        all=(${=$(_tonnage_words "$command")})
        fields=(${(M)all:#*=})
        compadd -S '' -- $fields
        compadd -- ${all:#*=}
        known="$(_tonnage_values "$command positional")"
        if [[ "$known" == @files ]]; then
            _files
        elif [[ -n "$current" && "$current" != *=* ]]; then
            compadd -- ${=known}
        fi
    fi
}

if [[ "${funcstack[1]}" == _tonnage ]]; then
    _tonnage "$@"
else
    compdef _tonnage tonnage
fi
