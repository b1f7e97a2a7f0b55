//! The instructions of the restorer stub ([`super::stub`]).

use std::arch::global_asm;

/// Counts an event in the control block, and wakes the tracker (`futex(FUTEX_WAKE)`).
macro_rules! count_event {
    () => {
        "lock inc dword ptr [r12 + 8]
         lea rdi, [r12 + 8]
         mov eax, 202
         mov esi, 1
         mov edx, 0x7fffffff
         xor r10d, r10d
         syscall"
    };
}

global_asm!(
    ".pushsection .text.dormouse_stub,\"ax\",@progbits",
    ".globl dormouse_stub_start",
    ".globl dormouse_stub_end",
    "dormouse_stub_start:",
    // rbx: operation, r12: control block. Nothing else lives across a system call.
    "20:",
    "mov rax, [rbx]",
    "cmp rax, -4",
    "jae 30f",
    call_at_rbx!(),
    // A new task goes on with its own list.
    "test rax, rax",
    "jnz 21f",
    "mov rcx, [rbx + 64]",
    "test rcx, rcx",
    "jz 21f",
    "mov rbx, rcx",
    "jmp 20b",
    "21:",
    "mov [rbx + 88], rax",
    "mov rcx, [rbx + 56]",
    "test rcx, rcx",
    "jz 22f",
    "mov [rcx], rax",
    "22:",
    "mov rcx, [rbx + 72]",
    "cmp rcx, 1",
    "je 24f",
    "cmp rcx, 2",
    "je 23f",
    "cmp rax, -4096",
    "ja 40f",
    "jmp 24f",
    "23:",
    "cmp rax, [rbx + 80]",
    "jne 40f",
    "24:",
    "add rbx, 96",
    "jmp 20b",
    // Pseudo-operations.
    "30:",
    "je 35f",
    "cmp rax, -2",
    "je 31f",
    "ja 34f",
    "jmp 33f",
    // Set flags, from the word that follows.
    "35:",
    "lea rsp, [rbx + 8]",
    "popfq",
    "jmp 24b",
    // Wait until the gate is open.
    "31:",
    "mov rdi, [rbx + 8]",
    "cmp dword ptr [rdi], 0",
    "jne 24b",
    "mov eax, 202",
    "xor esi, esi",
    "xor edx, edx",
    "xor r10d, r10d",
    "syscall",
    "jmp 31b",
    // Report and go on.
    "33:",
    "lock inc dword ptr [r12]",
    count_event!(),
    "jmp 24b",
    // The end: report and park.
    "34:",
    "lock inc dword ptr [r12]",
    "jmp 41f",
    // Failure: say which operation, and park.
    "40:",
    "mov [r12 + 16], rbx",
    "lock inc dword ptr [r12 + 4]",
    "41:",
    count_event!(),
    "42:",
    "mov eax, 34",
    "syscall",
    "jmp 42b",
    "dormouse_stub_end:",
    ".popsection",
);

unsafe extern "C" {
    static dormouse_stub_start: u8;
    static dormouse_stub_end: u8;
}

/// What is copied into the page that recreated processes execute.
pub(super) fn code() -> &'static [u8] {
    // SAFETY: the two symbols bound the stub in our text.
    unsafe {
        let start = &raw const dormouse_stub_start;
        let bytes = (&raw const dormouse_stub_end).offset_from(start) as usize;
        std::slice::from_raw_parts(start, bytes)
    }
}
