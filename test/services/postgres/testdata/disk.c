/* Makes fsync and fdatasync wait while a file exists, as a disk that stalls does. Postgres loads it
 * by LD_PRELOAD. The environment variable TIDEMARK_STALL names the file. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static void wait_for_disk(void) {
	const char *stalled = getenv("TIDEMARK_STALL");
	while (stalled && access(stalled, F_OK) == 0)
		usleep(1000);
}

int fsync(int file) {
	wait_for_disk();
	return syscall(SYS_fsync, file);
}

int fdatasync(int file) {
	wait_for_disk();
	return syscall(SYS_fdatasync, file);
}
