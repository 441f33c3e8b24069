# The script of the process that outlives the test's: `sh -c SCRIPT sh DIRECTORY`. It reads from a pipe that the process of the test holds open and never writes to, so the
# input ends when that process ends, however it does. Then it ends the server of the directory, and removes the directory.
dir=$1
trap '' HUP INT TERM
read -r _
# Postgres writes its process id there first. It works in its data directory, so that an id that somebody else has by now is not taken for it.
pid=$(head -n 1 "$dir/data/postmaster.pid" 2>/dev/null)
runs() { [ -n "$pid" ] && [ "$(readlink "/proc/$pid/cwd")" = "$dir/data" ]; }
# One that was killed leaves its segment of shared memory: the second number of line 7.
memory=$(sed -n '7s/.* //p' "$dir/data/postmaster.pid" 2>/dev/null)
runs && kill -QUIT "$pid" && kill -CONT "$pid"
tries=0
while runs; do
	tries=$((tries + 1))
	[ "$tries" -lt 150 ] || kill -KILL "$pid"
	sleep 0.05
done
[ -z "$memory" ] || ipcrm -m "$memory" 2>/dev/null
# A program that was just starting may still write.
while [ -e "$dir" ]; do
	rm -rf "$dir" 2>/dev/null || sleep 0.05
done
