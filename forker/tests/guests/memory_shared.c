/* Memory that several mappings and processes share. */
#include "guest.h"

#include <sys/ipc.h>
#include <sys/shm.h>

#define PAGE 4096ul
#ifndef F_ADD_SEALS
#define F_ADD_SEALS 1033
#define F_GET_SEALS 1034
#endif

GUEST(memory_shared_twice)
{
	char *memory = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	pattern_fill(memory, 4 * PAGE, 1);
	/* The same pages once more, by a length of zero. */
	char *again = mremap(memory, 0, 8 * PAGE, MREMAP_MAYMOVE);
	CHECK(again != MAP_FAILED && again != memory);
	ready();
	wait_go();
	CHECK(pattern_holds(memory, 4 * PAGE, 1) && pattern_holds(again, 4 * PAGE, 1));
	memory[7 * PAGE] = 9;
	CHECK(again[7 * PAGE] == 9 && again[6 * PAGE] == 0);
}

GUEST(memory_shared_between_processes)
{
	volatile int *memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	memory[0] = 100;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		while (memory[1] == 0)
			sleep_ms(1);
		CHECK(memory[0] == 100 && memory[1] == 5);
		memory[2] = 6;
		_exit(0);
	}
	ready();
	wait_go();
	CHECK(memory[0] == 100 && memory[2] == 0);
	memory[1] = 5;
	reap(child);
	CHECK(memory[2] == 6);
}

GUEST(memory_memfd_mapped)
{
	int file = memfd_create("some name", MFD_ALLOW_SEALING | MFD_CLOEXEC);
	CHECK(file >= 0 && ftruncate(file, 3 * PAGE + 100) == 0);
	char *shared = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	char *private = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, PAGE);
	CHECK(shared != MAP_FAILED && private != MAP_FAILED);
	close(file);
	pattern_fill(shared, 2 * PAGE, 1);
	shared[3 * PAGE + 99] = 'e';
	private[PAGE] = 'p';
	ready();
	wait_go();
	CHECK(pattern_holds(shared, 2 * PAGE, 1) && shared[3 * PAGE + 99] == 'e');
	CHECK(pattern_holds(private, PAGE, 0) == 0 && private[PAGE] == 'p' && shared[2 * PAGE] == 0);
	/* Not yet copied, so a change of the shared page is seen through the private mapping. */
	shared[PAGE + 8] = 'n';
	CHECK(private[8] == 'n');
	char maps[1 << 16];
	slurp("/proc/self/maps", maps, sizeof maps);
	CHECK(strstr(maps, "/memfd:some name (deleted)") != NULL);
}

GUEST(memory_memfd_sealed)
{
	int file = memfd_create("sealed", MFD_ALLOW_SEALING);
	CHECK(file >= 0 && ftruncate(file, 2 * PAGE) == 0);
	CHECK(pwrite(file, "content", 7, 100) == 7);
	int seals = 0x0002 | 0x0004 | 0x0008; /* shrink, grow, write */
	CHECK(fcntl(file, F_ADD_SEALS, seals) == 0);
	char *memory = mmap(NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE, file, 0);
	CHECK(memory != MAP_FAILED);
	CHECK(lseek(file, 103, SEEK_SET) == 103);
	ready();
	wait_go();
	char rest[5] = "";
	CHECK(read(file, rest, 4) == 4 && strcmp(rest, "tent") == 0);
	CHECK(memcmp(memory + 100, "content", 7) == 0);
	CHECK((fcntl(file, F_GET_SEALS) & seals) == seals);
	CHECK(write(file, "x", 1) < 0 && errno == EPERM);
	CHECK(fcntl(file, F_ADD_SEALS, 0x0001) == 0);
}

static struct shmid_ds state_of(int id)
{
	struct shmid_ds state;
	CHECK(shmctl(id, IPC_STAT, &state) == 0);
	return state;
}

GUEST(memory_sysv)
{
	int keyed = shmget(0x5ab1e, 4 * PAGE, IPC_CREAT | IPC_EXCL | 0640);
	int removed = shmget(IPC_PRIVATE, 3 * PAGE + 5, 0600);
	int idle = shmget(0x5ab1f, PAGE, IPC_CREAT | IPC_EXCL | 0600);
	CHECK(keyed >= 0 && removed >= 0 && idle >= 0);
	char *first = shmat(keyed, NULL, 0), *second = shmat(keyed, NULL, SHM_RDONLY);
	char *third = shmat(removed, NULL, 0), *fourth = shmat(idle, NULL, 0);
	CHECK(first != (void *)-1 && second != (void *)-1 && third != (void *)-1 && fourth != (void *)-1);
	pattern_fill(first, 4 * PAGE, 1);
	pattern_fill(third, 3 * PAGE, 2);
	strcpy(fourth, "idle");
	CHECK(shmdt(fourth) == 0);
	CHECK(munmap(third + PAGE, PAGE) == 0);
	CHECK(shmctl(removed, IPC_RMID, NULL) == 0);
	struct shmid_ds keyed_state = state_of(keyed), removed_state = state_of(removed);
	ready();
	wait_go();
	CHECK(pattern_holds(first, 4 * PAGE, 1) && pattern_holds(second, 4 * PAGE, 1));
	first[0] = 'z';
	CHECK(second[0] == 'z' && faults_on_write(second) && faults_on_read(third + PAGE));
	/* The pattern goes on over the hole. */
	CHECK(pattern_holds(third, PAGE, 2) && ((int *)third)[2 * PAGE / 4] != 0);
	CHECK(shmget(0x5ab1e, 0, 0) == keyed && shmget(0x5ab1f, 0, 0) == idle);
	struct shmid_ds state = state_of(keyed);
	CHECK(state.shm_nattch == keyed_state.shm_nattch && state.shm_segsz == 4 * PAGE);
	CHECK(state.shm_perm.mode == keyed_state.shm_perm.mode);
	state = state_of(removed);
	CHECK(state.shm_nattch == removed_state.shm_nattch && state.shm_segsz == 3 * PAGE + 5);
	CHECK(state.shm_perm.mode == removed_state.shm_perm.mode);
	fourth = shmat(idle, NULL, 0);
	CHECK(fourth != (void *)-1 && strcmp(fourth, "idle") == 0);
	CHECK(shmctl(idle, IPC_RMID, NULL) == 0 && shmctl(keyed, IPC_RMID, NULL) == 0);
	CHECK(shmdt(third) == 0);
}
