# The script of the process that outlives the test's: `sh -c SCRIPT sh DIRECTORY FAREWELL`. It reads
# from a pipe that the process of the test holds open and never writes to. So the input ends when
# that process ends. Then the script runs the farewell and kills every process that works in the
# directory or below it, which only the service's processes do. At last it removes the directory.
dir=$1
trap '' HUP INT TERM
read -r _
[ -z "$2" ] || sh -c "$2" sh "$dir"
while [ -e "$dir" ]; do
	ls -l /proc/[0-9]*/cwd 2>/dev/null |
		sed -n "s|^.* /proc/\([0-9]*\)/cwd -> $dir\(/.*\)*\$|\1|p" | while read -r pid; do
		kill -KILL "$pid"
	done
	rm -rf "$dir" 2>/dev/null || sleep 0.05
done
