//! The big core beside a small one that has its threads: it stands in the kernel's own idle instruction while the
//! board waits for an interrupt, and takes over any thread, or an interrupt handler, where the executor hands back.

use crate::error::OffloadError;
use crate::guest::Guest;
use crate::machine::outcome::Processor;
use crate::suspend::gdb::Gdb;
use crate::suspend::{MASKED, THUMB};

/// Where the executor lets a handler return to: `INTERRUPT_RETURN_ADDRESS` of `src/runtime/executor.h`.
const INTERRUPT_RETURN: u32 = 0xffff_ffe0;
/// `cpu_do_idle` of every ARMv7 processor.
const IDLE: &str = "cpu_v7_do_idle";
/// How far into it the instruction may be.
const IDLE_BYTES: u32 = 32;
/// Names and CP15 encodings of the thread registers: `mcr p15, 0, r0, c13, c0, N`.
const THREAD_REGISTERS: [(&str, u32); 3] = [
    ("TPIDRURW", 0xee0d_0f50),
    ("TPIDRURO", 0xee0d_0f70),
    ("TPIDRPRW", 0xee0d_0f90),
];
/// The register that such an instruction reads.
const SOURCE: u32 = 0xf << 12;
/// Words of `struct pt_regs` that are used: r0 to r15 and CPSR.
const FRAME_WORDS: u32 = 17;

/// Code of a kernel, in one instruction set.
struct Code<'a> {
    guest: &'a Guest,
    thumb: bool,
}

impl Code<'_> {
    fn of(guest: &Guest) -> Result<Code<'_>, OffloadError> {
        let thumb = guest.address(IDLE)? & 1 != 0;
        Ok(Code { guest, thumb })
    }

    /// The word of an instruction at an address; of one of 16 bits it is the upper half.
    fn word(&self, address: u32) -> Option<u32> {
        let at = address.checked_sub(self.guest.base)? as usize;
        let bytes = self.guest.memory.get(at..at + 4)?.try_into().ok()?;
        let word = u32::from_le_bytes(bytes);
        Some(if self.thumb {
            word.rotate_left(16)
        } else {
            word
        })
    }

    fn step(&self) -> usize {
        if self.thumb { 2 } else { 4 }
    }
}

/// The kernel's idle instruction, WFI, and the one behind it; bit 0: in T32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Idle {
    wait: u32,
    behind: u32,
}

impl Idle {
    #[cfg(test)]
    pub(super) fn at(wait: u32, behind: u32) -> Idle {
        Idle { wait, behind }
    }

    /// # Errors
    /// The kernel has none where it is known to be.
    pub fn of(guest: &Guest) -> Result<Idle, OffloadError> {
        let code = Code::of(guest)?;
        let start = guest.address(IDLE)? & !1;
        let bit = u32::from(code.thumb);
        let found = (start..start + IDLE_BYTES)
            .step_by(code.step())
            .find_map(|at| {
                let bytes = match (code.thumb, code.word(at)?) {
                    (true, 0xf3af_8003) | (false, 0xe320_f003) => 4,
                    (true, word) if word >> 16 == 0xbf30 => 2,
                    _ => return None,
                };
                Some(Idle {
                    wait: at | bit,
                    behind: (at + bytes) | bit,
                })
            });
        found.ok_or_else(|| OffloadError::BigMachine(format!("has no WFI in {IDLE}")))
    }

    /// Lets the board go on until it has an interrupt for the big core, which does not take it. Of the big core,
    /// PC and CPSR change.
    ///
    /// # Errors
    /// The machine ends or stops elsewhere.
    pub fn wait(self, gdb: &mut Gdb) -> Result<(), OffloadError> {
        put_at(gdb, self.wait & !1, self.wait & 1 != 0)?;
        gdb.run_to(self.behind)
    }
}

/// The big core goes on at an address, with interrupts masked.
fn put_at(gdb: &mut Gdb, address: u32, thumb: bool) -> Result<(), OffloadError> {
    let status = gdb.status()? & !THUMB | MASKED;
    // The instruction set first: it says where the program counter may be.
    gdb.set_status(if thumb { status | THUMB } else { status })?;
    gdb.set_register(15, address)
}

/// Sets the big core's thread registers, by executing instructions of the kernel's that do; others change.
///
/// # Errors
/// The kernel has no such instruction, or the machine does not take it.
pub fn set_thread(
    gdb: &mut Gdb,
    guest: &Guest,
    (now, wanted): ([u32; 3], [u32; 3]),
) -> Result<(), OffloadError> {
    let code = Code::of(guest)?;
    for (index, (name, encoding)) in THREAD_REGISTERS.iter().enumerate() {
        if now[index] == wanted[index] {
            continue;
        }
        let (address, word) = (guest.text_start..guest.text_end)
            .step_by(code.step())
            .filter_map(|at| Some((at, code.word(at)?)))
            .find(|(_, word)| word & !SOURCE == *encoding)
            .ok_or_else(|| {
                OffloadError::BigMachine(format!("has no instruction that sets {name}"))
            })?;
        put_at(gdb, address, code.thumb)?;
        gdb.set_register((word & SOURCE) >> 12, wanted[index])?;
        gdb.step()?;
    }
    Ok(())
}

/// The big core goes on in an interrupt handler that the executor began: to its end, and then behind what it
/// interrupted.
///
/// # Errors
/// The machine ends before that.
pub fn leave_interrupt(gdb: &mut Gdb, processor: Processor) -> Result<(), OffloadError> {
    let Some(frame) = processor.interrupted else {
        return Ok(());
    };
    gdb.run_to(INTERRUPT_RETURN)?;
    let mut words = [0; FRAME_WORDS as usize];
    for (number, word) in words.iter_mut().enumerate() {
        *word = gdb.read(frame + 4 * number as u32, 4)?;
    }
    let mut registers = [0; 16];
    registers.copy_from_slice(&words[..16]);
    // The instruction set first: it says where the program counter may be.
    gdb.set_status(words[16])?;
    gdb.set_registers(&registers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suspend::gdb::tests::machine_that_answers;
    use std::collections::BTreeMap;

    const BASE: u32 = 0xc000_0000;

    fn kernel(words: &[u32], thumb: bool) -> Guest {
        let memory: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let end = BASE + memory.len() as u32;
        Guest {
            base: BASE,
            memory,
            text_start: BASE,
            text_end: end,
            end,
            symbols: BTreeMap::from([(IDLE.to_owned(), BASE | u32::from(thumb))]),
        }
    }

    #[test]
    fn the_idle_instruction_is_found_in_each_encoding() {
        let idle = |wait, behind| Idle { wait, behind };
        let found = |words: &[u32], thumb| Idle::of(&kernel(words, thumb)).unwrap();
        // dsb; wfi; bx lr
        let a32 = [0xf57f_f04f, 0xe320_f003, 0xe12f_ff1e];
        assert_eq!(found(&a32, false), idle(BASE + 4, BASE + 8));
        let t32 = [0x8f4f_f3bf, 0x4770_bf30];
        assert_eq!(found(&t32, true), idle(BASE + 5, BASE + 7));
        let wide = [0x8f4f_f3bf, 0x8003_f3af, 0x4770];
        assert_eq!(found(&wide, true), idle(BASE + 5, BASE + 9));
        let error = Idle::of(&kernel(&[0; 16], false)).unwrap_err().to_string();
        assert!(error.contains("no WFI in cpu_v7_do_idle"), "{error}");
    }

    #[test]
    fn only_thread_registers_that_differ_are_set_and_by_the_kernels_own_code() {
        // nop; mcr p15, 0, r7, c13, c0, 3
        let guest = kernel(&[0xe320_f000, 0xee0d_7f70], false);
        let answers = &["13000060", "OK", "OK", "OK", "T05"];
        let (mut gdb, _folder) = machine_that_answers(answers);
        set_thread(&mut gdb, &guest, ([1, 2, 3], [1, 5, 3])).unwrap();
        set_thread(&mut gdb, &guest, ([1, 2, 3], [1, 2, 3])).unwrap();
        let error = set_thread(&mut gdb, &guest, ([1, 2, 3], [9, 2, 3]));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("sets TPIDRURW"), "{error}");
    }
}
