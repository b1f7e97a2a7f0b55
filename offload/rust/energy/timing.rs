//! Cycles of a Cortex-M3 for each instruction, from its technical reference manual (Arm DDI 0337I, table 3-1 and
//! the notes on loads and stores in section 3.3.3). Where the manual gives a range, or a condition that a count of
//! executions does not show, both ends are kept. The copies of the manual that could be read ended before the rows
//! of MRS, MSR, CPS and exclusives: these figures have no reference that was checked.

/// When an instruction makes the pipeline refill, which takes [`REFILL`] more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refill {
    /// It does not branch.
    Never,
    /// Where it branches.
    IfTaken,
    /// It branches each time.
    Always,
    /// Its second half is not known.
    Unknown,
}

/// Cycles at least and at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CycleSpan {
    /// At least.
    pub low: u64,
    /// At most.
    pub high: u64,
}

/// What an instruction takes beside a refill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Cycles.
    pub cycles: CycleSpan,
    /// Whether the pipeline refills.
    pub refill: Refill,
}

/// P of the manual: by alignment and width of the target, and whether the address was known early.
pub const REFILL: CycleSpan = CycleSpan { low: 1, high: 3 };
/// Entry and return of an exception: 12 and 10 cycles by Arm's article 103489845, which corrects the manual's 12 for
/// the return. At least: the refill of the branch that returns is among them. At most: the six cycles of fetching
/// vector and handler cannot be behind those of stacking, as where all is on the system bus.
pub const EXCEPTION: CycleSpan = CycleSpan { low: 21, high: 28 };

const fn takes(low: u64, high: u64, refill: Refill) -> Cost {
    let cycles = CycleSpan { low, high };
    Cost { cycles, refill }
}

const ONE: Cost = takes(1, 1, Refill::Never);
/// 2; 1 behind another one, as their address and data phases overlap, and for stores; 1 more where the instruction
/// before it makes the address, and for a constant where the code is.
const ACCESS: Cost = takes(1, 3, Refill::Never);
/// The first half of a 32-bit instruction: from one cycle to a list of all registers.
const HALF: Cost = takes(1, 18, Refill::Unknown);
const BRANCH: Cost = takes(1, 1, Refill::Always);
const CONDITIONAL: Cost = takes(1, 1, Refill::IfTaken);

/// 1 + N, 1 more where the instruction before it makes the address, and a refill if PC is loaded.
fn list(registers: u32, loads_pc: bool) -> Cost {
    let cycles = 1 + u64::from(registers.count_ones());
    let refill = if loads_pc {
        Refill::Always
    } else {
        Refill::Never
    };
    takes(cycles, cycles + 1, refill)
}

/// An encoding of 16 bits.
fn narrow(word: u32) -> Cost {
    match word >> 8 {
        0x47 => BRANCH,
        // To PC.
        0x44 | 0x46 if word & 0x87 == 0x87 => BRANCH,
        0x48..=0x9f => ACCESS,
        0xb1 | 0xb3 | 0xb9 | 0xbb => CONDITIONAL,
        // PUSH with LR, POP with PC.
        0xb4 | 0xb5 => list(word & 0x1ff, false),
        0xbc | 0xbd => list(word & 0x1ff, word & 0x100 != 0),
        0xb6 => takes(1, 2, Refill::Never),
        // IT may be folded into the instruction before it.
        0xbf if word & 0xf != 0 => takes(0, 1, Refill::Never),
        // BKPT is the emulator's semihosting.
        0xbe => takes(0, 0, Refill::Never),
        0xc0..=0xcf => list(word & 0xff, false),
        // SVC: all of it is the exception's.
        0xdf => takes(0, 1, Refill::Never),
        0xd0..=0xdd => CONDITIONAL,
        0xe0..=0xe7 => BRANCH,
        _ => ONE,
    }
}

fn multiply(first: u32, second: u32) -> Cost {
    match first >> 4 & 0xf {
        // SMULL and UMULL; SDIV and UDIV; with accumulation: they end early by their operands.
        0x8 | 0xa => takes(3, 5, Refill::Never),
        0x9 | 0xb => takes(2, 12, Refill::Never),
        0xc..=0xf => takes(4, 7, Refill::Never),
        _ if second >> 12 == 0xf => ONE,
        _ => takes(2, 2, Refill::Never),
    }
}

/// Lists, doublewords, exclusives and branches by a table.
fn several(first: u32, second: u32) -> Cost {
    let loads = first & 0x10 != 0;
    if first & 0x40 == 0 {
        return list(second, loads && second & 0x8000 != 0);
    }
    match first & 0xfff0 {
        // TBB, TBH: 2 and a refill in the table; 2, 1 and a refill in the notes.
        0xe8d0 if second & 0xe0 == 0 => takes(2, 4, Refill::Always),
        0xe840 | 0xe850 | 0xe8c0 | 0xe8d0 => ACCESS,
        _ => takes(3, 4, Refill::Never),
    }
}

fn control(first: u32, second: u32) -> Cost {
    if second & 0x5000 != 0 {
        BRANCH
    } else if first & 0x380 != 0x380 {
        CONDITIONAL
    } else if first & 0xfff0 == 0xf3b0 {
        // Barriers: 1 + B; ISB is a refill at least.
        let refill = second & 0xf0 == 0x60;
        takes(1 + u64::from(refill), 4, Refill::Never)
    } else {
        // MRS, MSR.
        takes(1, 2, Refill::Never)
    }
}

/// An encoding of 32 bits.
fn wide(first: u32, second: u32) -> Cost {
    match first >> 8 {
        0xe8 | 0xe9 => several(first, second),
        0xf0..=0xf7 if second & 0x8000 != 0 => control(first, second),
        // LDR to PC; with PC as target of smaller loads it is a hint.
        0xf8 | 0xf9 if first & 0x70 == 0x50 && second >> 12 == 0xf => takes(2, 3, Refill::Always),
        0xf8 | 0xf9 => ACCESS,
        0xfb => multiply(first, second),
        _ => ONE,
    }
}

/// Whether an encoding that begins with this halfword has a second one.
fn is_wide(first: u32) -> bool {
    first >> 11 >= 0x1d
}

/// Cycles of a block's instructions, and what its last one refills.
pub struct BlockCost {
    /// How many instructions it has.
    pub instructions: u64,
    /// All of them, without refills.
    pub cycles: CycleSpan,
    /// Of the last one.
    pub refill: Refill,
}

/// Of these instructions' bytes, of which each but the last is followed by the next; none if they break off
/// within a halfword. The emulator gives only the first half of a last instruction that crosses a page.
pub fn of_block(bytes: &[u8]) -> Option<BlockCost> {
    let mut halfwords = bytes.chunks(2).map(|pair| match *pair {
        [low, high] => Some(u32::from(low) | u32::from(high) << 8),
        _ => None,
    });
    let mut block = BlockCost {
        instructions: 0,
        cycles: CycleSpan::default(),
        refill: Refill::Never,
    };
    let mut conditional = 0;
    while let Some(first) = halfwords.next() {
        let first = first?;
        let mut cost = if is_wide(first) {
            match halfwords.next() {
                Some(second) => wide(first, second?),
                None => HALF,
            }
        } else {
            narrow(first)
        };
        if conditional > 0 {
            // Where its condition fails it takes one.
            conditional -= 1;
            cost.cycles.low = cost.cycles.low.min(1);
            if cost.refill == Refill::Always {
                cost.refill = Refill::IfTaken;
            }
        }
        if first >> 8 == 0xbf && first & 0xf != 0 {
            conditional = 4 - (first & 0xf).trailing_zeros();
        }
        block.instructions += 1;
        block.cycles.low += cost.cycles.low;
        block.cycles.high += cost.cycles.high;
        block.refill = cost.refill;
    }
    Some(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(halfwords: &[u16]) -> (u64, u64, Refill) {
        let bytes: Vec<u8> = halfwords.iter().flat_map(|h| h.to_le_bytes()).collect();
        let block = of_block(&bytes).unwrap();
        (block.cycles.low, block.cycles.high, block.refill)
    }

    #[test]
    fn each_kind_of_instruction_takes_what_the_manual_says() {
        use Refill::{Always, IfTaken, Never};
        for (halfwords, expected) in [
            (&[0x1840][..], (1, 1, Never)),       // adds r0, r0, r1
            (&[0x4348], (1, 1, Never)),           // muls r0, r1, r0
            (&[0x4770], (1, 1, Always)),          // bx lr
            (&[0x4687], (1, 1, Always)),          // mov pc, r0
            (&[0x4600], (1, 1, Never)),           // mov r0, r0
            (&[0x4587], (1, 1, Never)),           // cmp pc, r0: writes nothing
            (&[0x6808], (1, 3, Never)),           // ldr r0, [r1]
            (&[0x6008], (1, 3, Never)),           // str r0, [r1]
            (&[0x5840], (1, 3, Never)),           // ldr r0, [r0, r1]
            (&[0xb5f0], (6, 7, Never)),           // push {r4-r7, lr}: 1 + 5
            (&[0xbdf0], (6, 7, Always)),          // pop {r4-r7, pc}: 1 + 5 + P
            (&[0xbc10], (2, 3, Never)),           // pop {r4}
            (&[0xc80f], (5, 6, Never)),           // ldm r0!, {r0-r3}
            (&[0xd0fe], (1, 1, IfTaken)),         // beq
            (&[0xb108], (1, 1, IfTaken)),         // cbz r0
            (&[0xe7fe], (1, 1, Always)),          // b
            (&[0xb672], (1, 2, Never)),           // cpsid i
            (&[0xbf30], (1, 1, Never)),           // wfi: 1 + W, and W is waiting
            (&[0xf000, 0xf800], (1, 1, Always)),  // bl
            (&[0xf000, 0xb800], (1, 1, Always)),  // b.w
            (&[0xf000, 0x8000], (1, 1, IfTaken)), // beq.w
            (&[0xf3ef, 0x8009], (1, 2, Never)),   // mrs r0, psp
            (&[0xf3bf, 0x8f6f], (2, 4, Never)),   // isb: 1 + P
            (&[0xf3bf, 0x8f4f], (1, 4, Never)),   // dsb: 1 + B
            (&[0xf240, 0x0000], (1, 1, Never)),   // movw
            (&[0xea00, 0x0001], (1, 1, Never)),   // and.w
            (&[0xe8bd, 0x80f0], (6, 7, Always)),  // pop.w {r4-r7, pc}
            (&[0xe92d, 0x41f0], (7, 8, Never)),   // push.w {r4-r8, lr}
            (&[0xe9d0, 0x0100], (3, 4, Never)),   // ldrd: 1 + 2
            (&[0xe850, 0x0f00], (1, 3, Never)),   // ldrex
            (&[0xe8d0, 0xf000], (2, 4, Always)),  // tbb: 2 + P
            (&[0xf8d0, 0xf000], (2, 3, Always)),  // ldr pc, [r0]
            (&[0xf8d0, 0x0004], (1, 3, Never)),   // ldr.w
            (&[0xfb00, 0xf001], (1, 1, Never)),   // mul
            (&[0xfb00, 0x2001], (2, 2, Never)),   // mla
            (&[0xfba0, 0x0102], (3, 5, Never)),   // umull
            (&[0xfbb0, 0xf0f1], (2, 12, Never)),  // udiv
            (&[0xfbe0, 0x0102], (4, 7, Never)),   // umlal
            (&[0xfa00, 0xf001], (1, 1, Never)),   // lsl.w
        ] {
            assert_eq!(cost(halfwords), expected, "{halfwords:04x?}");
        }
    }

    #[test]
    fn a_conditional_instruction_takes_one_where_it_is_not_executed() {
        // ittt eq; ldmeq r0, {r1, r2}; addeq; popeq {r4, pc}; what follows has no condition.
        let block = [0xbf02, 0xe890, 0x0006, 0x1840, 0xbd10];
        assert_eq!(cost(&block), (3, 1 + 4 + 1 + 4, Refill::IfTaken));
        assert_eq!(
            cost(&[0xbf08, 0x1840, 0xbd10]),
            (1 + 3, 1 + 1 + 4, Refill::Always)
        );
    }

    #[test]
    fn instructions_that_break_off_are_none() {
        assert!(of_block(&[0x00]).is_none());
        assert!(of_block(&[0x00, 0xf0, 0x00]).is_none());
    }

    #[test]
    fn half_an_instruction_at_the_end_of_a_page_takes_whatever_its_other_half_may_say() {
        assert_eq!(cost(&[0x1840, 0xe8bd]), (1 + 1, 1 + 18, Refill::Unknown));
        for second in [0x0001, 0x8000, 0xffff] {
            let (low, high, _) = cost(&[0xe8bd, second]);
            assert!(low >= 1 && high <= 18);
        }
    }
}
