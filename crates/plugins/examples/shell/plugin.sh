# A plugin in shell: a tool that says how full the disk is, and a hook that notes when a run has ended.
#
# One JSON object comes on each line; sed takes what is needed out of it. This is enough for a small plugin:
# what Homard sends begins with {"jsonrpc":"2.0","id":…,"method":"…".

answer() { # answer ID RESULT
    printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$1" "$2"
}

quoted() { # makes a JSON string of standard input
    printf '"%s"' "$(sed -e 's/[\\"]/\\&/g' -e 's/	/ /g' | sed -e ':a' -e '$!N' -e '$!ba' -e 's/\n/\\n/g')"
}

runs=0

while IFS= read -r line; do
    id=$(printf '%s\n' "$line" | sed -n 's/^{"jsonrpc":"2.0","id":\([0-9]*\),.*/\1/p')
    method=$(printf '%s\n' "$line" | sed -n 's/^{"jsonrpc":"2.0","id":[0-9]*,"method":"\([^"]*\)".*/\1/p')
    [ -n "$id" ] || continue # a notice, which needs no answer
    case $method in
    initialize)
        answer "$id" '{"name":"disk","version":"1.0.0"}'
        ;;
    hook.invoke) # the only hook is agent_end
        runs=$((runs + 1))
        echo "runs so far: $runs" >&2 # standard error goes to the log
        answer "$id" '{"result":null}'
        ;;
    tools.execute)
        text=$(df -h . | quoted)
        answer "$id" "{\"content\":[{\"type\":\"text\",\"text\":$text}]}"
        ;;
    ping)
        answer "$id" '"pong"'
        ;;
    shutdown)
        answer "$id" '{}'
        exit 0
        ;;
    *)
        printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown method"}}\n' "$id"
        ;;
    esac
done
