# Stops a command and its children when this process is killed, which closes the pipe to the shell's stdin: with SIGTERM
# and then SIGKILL, since the first may come before the command is there. A parent-death signal would reach git but not
# its ssh or http helper, and a preexec_fn may deadlock beside threads.
exec 3<&0 </dev/null
(read -r _ <&3; trap '' TERM; kill -TERM 0; sleep 1; kill -KILL 0) >/dev/null 2>&1 &
watch=$!
trap : TERM
"$@" 3<&- &
wait $!; code=$?
while [ $code -gt 128 ] && kill -0 $! 2>/dev/null; do wait $!; code=$?; done
exec 2>/dev/null  # bash as sh reports each process that a signal ended
kill -KILL $watch
exit $code
