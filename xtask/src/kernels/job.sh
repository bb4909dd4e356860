# Takes the script and the program from the second disk, and runs the script; what it says leaves by the second serial line, and
# by a pipe: nothing of it is for a terminal.
for word in $(cat /proc/cmdline); do
  case $word in
    ringfence.script=*) script=${word#*=} ;;
    ringfence.program=*) program=${word#*=} ;;
  esac
done
head -c "$script" /dev/vdb > /run/script
tail -c +"$((script + 1))" /dev/vdb | head -c "$program" > /usr/local/bin/ringfence
chmod 755 /usr/local/bin/ringfence
stty -F /dev/ttyS1 -opost
bash /run/script 2>&1 < /dev/null | cat > /dev/ttyS1
# Not every release's own way to switch off leads to its end.
sync
sleep 2
echo o > /proc/sysrq-trigger
