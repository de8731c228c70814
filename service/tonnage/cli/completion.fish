# fish completion of tonnage; made by `tonnage completion fish`
function __tonnage_words
    switch "$argv[1]"
#COMMANDS#
    end
end

function __tonnage_values
    switch "$argv[1]"
#VALUES#
    end
end

# what is being completed: the command, the field or option whose value it is, and what stands before the value
function __tonnage_place
    set -g __tonnage_command ""
    set -g __tonnage_name ""
    set -g __tonnage_before ""
    set -l typed (commandline -opc)
    set -l current (commandline -ct)
    if test (count $typed) -gt 1
        set __tonnage_command $typed[2]
        if test "$__tonnage_command" = catalog; and test (count $typed) -gt 2
            set __tonnage_command "catalog $typed[3]"
        end
    end
    if string match -q -- '*=*' $current
        set __tonnage_name (string split -m 1 = -- $current)[1]
        set __tonnage_before "$__tonnage_name="
    else if string match -q -- '--*' $typed[-1]
        set __tonnage_name $typed[-1]
    end
    set __tonnage_name (string replace -a -- - _ (string replace -r -- '^--' '' "$__tonnage_name"))
end

function __tonnage_known
    set -l known (__tonnage_values "$__tonnage_command $__tonnage_name")
    test (count $known) -gt 0; or set known (__tonnage_values "$__tonnage_name")
    test (count $known) -gt 0; and printf '%s\n' $known
end

function __tonnage_complete
    __tonnage_place
    set -l known (__tonnage_known)
    if test (count $known) -gt 0
        printf "$__tonnage_before%s\n" (string match -v -- @files $known)
        return
    end
    __tonnage_words "$__tonnage_command"
    if test -n (commandline -ct | string collect -a)
        __tonnage_values "$__tonnage_command positional" | string match -v -- @files
    end
end

function __tonnage_takes_files
    __tonnage_place
    set -l known (__tonnage_known)
    test (count $known) -gt 0; or set known (__tonnage_values "$__tonnage_command positional")
    test "$known" = @files
end

complete -c tonnage -f -a '(__tonnage_complete)'
complete -c tonnage -n __tonnage_takes_files -F
