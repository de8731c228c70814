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

function __tonnage_complete
    set -l typed (commandline -opc)
    set -l current (commandline -ct)
    set -l command ""
    if test (count $typed) -gt 1
        set command $typed[2]
        if test "$command" = catalog; and test (count $typed) -gt 2
            set command "catalog $typed[3]"
        end
    end
    if string match -q -- '*=*' $current
        set -l name (string split -m 1 = -- $current)[1]
        set -l known (__tonnage_values (string replace -a -- - _ (string replace -r -- '^--' '' $name)))
        if test (count $known) -gt 0
            printf "$name=%s\n" $known
            return
        end
    else if string match -q -- '--*' $typed[-1]
        set -l known (__tonnage_values (string replace -a -- - _ (string replace -r -- '^--' '' $typed[-1])))
        if test (count $known) -gt 0
            printf '%s\n' $known
            return
        end
    end
    __tonnage_words "$command"
end

complete -c tonnage -f -a '(__tonnage_complete)'
complete -c tonnage -n 'not test -z (commandline -ct)' -F
