/* Registers, while the program runs and never waits. */
#include "guest.h"

#include <immintrin.h>

/* Loads all vector registers, spins until a word in memory changes, and compares. Returns the number
 * of registers that differ. */
__attribute__((target("avx"), noinline)) static int hold_vectors(volatile int *stop)
{
	static float in[16][8], out[16][8];
	for (int at = 0; at < 16; at++)
		for (int lane = 0; lane < 8; lane++)
			in[at][lane] = at * 8 + lane + 0.5f;
	__asm__ volatile(
		"vmovups 0(%0), %%ymm0\n vmovups 32(%0), %%ymm1\n vmovups 64(%0), %%ymm2\n"
		"vmovups 96(%0), %%ymm3\n vmovups 128(%0), %%ymm4\n vmovups 160(%0), %%ymm5\n"
		"vmovups 192(%0), %%ymm6\n vmovups 224(%0), %%ymm7\n vmovups 256(%0), %%ymm8\n"
		"vmovups 288(%0), %%ymm9\n vmovups 320(%0), %%ymm10\n vmovups 352(%0), %%ymm11\n"
		"vmovups 384(%0), %%ymm12\n vmovups 416(%0), %%ymm13\n vmovups 448(%0), %%ymm14\n"
		"vmovups 480(%0), %%ymm15\n"
		"mov $0x1111, %%r8\n mov $0x2222, %%r9\n mov $0x3333, %%r10\n mov $0x4444, %%r11\n"
		"1: pause\n cmpl $0, (%2)\n je 1b\n"
		"vmovups %%ymm0, 0(%1)\n vmovups %%ymm1, 32(%1)\n vmovups %%ymm2, 64(%1)\n"
		"vmovups %%ymm3, 96(%1)\n vmovups %%ymm4, 128(%1)\n vmovups %%ymm5, 160(%1)\n"
		"vmovups %%ymm6, 192(%1)\n vmovups %%ymm7, 224(%1)\n vmovups %%ymm8, 256(%1)\n"
		"vmovups %%ymm9, 288(%1)\n vmovups %%ymm10, 320(%1)\n vmovups %%ymm11, 352(%1)\n"
		"vmovups %%ymm12, 384(%1)\n vmovups %%ymm13, 416(%1)\n vmovups %%ymm14, 448(%1)\n"
		"vmovups %%ymm15, 480(%1)\n"
		"cmp $0x1111, %%r8\n jne 2f\n cmp $0x2222, %%r9\n jne 2f\n"
		"cmp $0x3333, %%r10\n jne 2f\n cmp $0x4444, %%r11\n je 3f\n"
		"2: movl $0, 0(%1)\n"
		"3:\n"
		:
		: "r"(in), "r"(out), "r"(stop)
		: "memory", "cc", "r8", "r9", "r10", "r11", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5",
		  "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
	int different = 0;
	for (int at = 0; at < 16; at++)
		different += memcmp(in[at], out[at], sizeof in[at]) != 0;
	return different;
}

static volatile int stop;

static void *wait_and_stop(void *argument)
{
	ready();
	wait_go();
	stop = 1;
	return argument;
}

GUEST(registers_vectors)
{
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, wait_and_stop, NULL) == 0);
	if (__builtin_cpu_supports("avx"))
		CHECK(hold_vectors(&stop) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
}

GUEST(registers_rounding)
{
	/* How numbers are rounded is a register too, of the old unit and of the new. */
	unsigned short control = 0x0f7f, control_now = 0;
	unsigned vector = 0x7f80, vector_now = 0;
	__asm__ volatile("fldcw %0\n ldmxcsr %1" : : "m"(control), "m"(vector));
	ready();
	wait_go();
	__asm__ volatile("fnstcw %0\n stmxcsr %1" : "=m"(control_now), "=m"(vector_now));
	CHECK(control_now == control && (vector_now & ~0x3fu) == vector);
}
