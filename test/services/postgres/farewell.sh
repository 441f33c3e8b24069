# Ends the server of a directory (`sh -c SCRIPT sh DIRECTORY`): as in a crash, but with its
# children, and without leaving shared memory.
dir=$1
# The first line of the file is Postgres's process id. Postgres works in its data directory. So a
# process that has the same id by now is not taken for it.
pid=$(head -n 1 "$dir/data/postmaster.pid" 2>/dev/null)
runs() { [ -n "$pid" ] && [ "$(readlink "/proc/$pid/cwd")" = "$dir/data" ]; }
# A killed server leaves its segment of shared memory: the second number of line 7.
memory=$(sed -n '7s/.* //p' "$dir/data/postmaster.pid" 2>/dev/null)
runs && kill -QUIT "$pid" && kill -CONT "$pid"
tries=0
while runs; do
	tries=$((tries + 1))
	[ "$tries" -lt 150 ] || kill -KILL "$pid"
	sleep 0.05
done
[ -z "$memory" ] || ipcrm -m "$memory" 2>/dev/null
