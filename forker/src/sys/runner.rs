//! The machine code of the tape runner, as it is copied into other processes.

use std::ptr;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the tape runner is written for x86-64 only");

// Registers only, no stack, position independent. A record is 80 bytes: number, flags, six arguments,
// result, unused. rbx points at the record. The kernel keeps all registers but rax, rcx and r11.
std::arch::global_asm!(
    ".pushsection .rodata.branchpoint_runner, \"a\"",
    ".globl branchpoint_runner_start",
    ".globl branchpoint_runner_end",
    "branchpoint_runner_start:",
    "1:",
    "mov rax, [rbx]",
    "cmp rax, -1",
    "je 9f",
    "mov r12, [rbx + 8]",
    "mov rdi, [rbx + 16]",
    "test r12d, 1",
    "jz 2f",
    "mov rdi, [rdi]",
    "2:",
    "mov rsi, [rbx + 24]",
    "test r12d, 2",
    "jz 3f",
    "mov rsi, [rsi]",
    "3:",
    "mov rdx, [rbx + 32]",
    "test r12d, 4",
    "jz 4f",
    "mov rdx, [rdx]",
    "4:",
    "mov r10, [rbx + 40]",
    "test r12d, 8",
    "jz 5f",
    "mov r10, [r10]",
    "5:",
    "mov r8, [rbx + 48]",
    "test r12d, 16",
    "jz 6f",
    "mov r8, [r8]",
    "6:",
    "mov r9, [rbx + 56]",
    "test r12d, 32",
    "jz 7f",
    "mov r9, [r9]",
    "7:",
    "syscall",
    "mov [rbx + 64], rax",
    "test r12d, 64",
    "jz 8f",
    "cmp rax, -4095",
    "jae 9f",
    "8:",
    "add rbx, 80",
    "jmp 1b",
    "9:",
    "int3",
    "branchpoint_runner_end:",
    ".popsection",
);

unsafe extern "C" {
    static branchpoint_runner_start: u8;
    static branchpoint_runner_end: u8;
}

/// The code: entered at its first byte with the first record in rbx, it ends in a breakpoint.
pub fn code() -> &'static [u8] {
    let start = &raw const branchpoint_runner_start;
    let end = &raw const branchpoint_runner_end;
    let length = end.addr() - start.addr();
    // SAFETY: both symbols mark one stretch of read-only data of this program, assembled above.
    unsafe { &*ptr::slice_from_raw_parts(start, length) }
}
