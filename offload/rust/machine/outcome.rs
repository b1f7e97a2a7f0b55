//! Reads the executor's report: one line for each run.

use std::collections::BTreeMap;

use serde::Serialize;

/// How a run ended: `enum offload_stop` of `include/offload.h`, in its order.
pub const STOPS: [(&str, &str); 16] = [
    ("running", "it did not end"),
    ("returned", "the function returned"),
    ("undefined", "there is no such instruction"),
    (
        "unpredictable",
        "the architecture leaves open what this instruction does",
    ),
    (
        "refused",
        "this executor does not execute this instruction (user mode, exception return or coprocessor)",
    ),
    ("unaligned", "an access that must be aligned was not"),
    ("unmapped-read", "nothing is mapped at the address it read"),
    (
        "unmapped-write",
        "nothing is mapped at the address it wrote",
    ),
    (
        "unmapped-code",
        "there is no code at the address it went to",
    ),
    ("code-written", "the code changes itself"),
    ("stack-overflow", "the stack is full"),
    ("budget", "it ran for longer than it was allowed to"),
    (
        "fallback",
        "it called a function that the big core must run: handed back there",
    ),
    ("bad-job", "what was to be run makes no sense"),
    ("internal", "a fault of the executor itself"),
    (
        "wild-store",
        "it wrote into the executor's memory, here or earlier: its registers may be wrong",
    ),
];

/// One run.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Name of the reason for the stop; `returned` is success.
    pub stop: String,
    /// The reason in a sentence.
    pub explanation: String,
    /// Guest registers; the last is the address of the next instruction.
    pub registers: [u32; 16],
    /// N Z C V Q and the mode, as in CPSR.
    pub flags: u32,
    /// Instructions that the Cortex-M3 executed, all included; while it waits (`waited_us`) it executes none.
    pub instructions: u64,
    /// The instruction that it stopped at, when it did not return.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instruction: Option<String>,
    /// Its encoding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoding: Option<u32>,
    /// The address that it accessed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accessed: Option<u32>,
    /// Counters: translated instructions, bytes emitted, flushes of the cache, faults …
    pub counters: BTreeMap<String, u64>,
    /// The processor's state besides; only where the guest's interrupts are those of the big core's board.
    #[serde(skip)]
    pub processor: Option<Processor>,
}

/// CPSR's flags, GE, the state of an IT block, A, I, F, T and the mode.
const REPORTED: u32 = 0xfe0f_fdff;

/// What a big core needs to go on in another thread than the one that it stands in, or in an interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Processor {
    /// TPIDRURW, TPIDRURO and TPIDRPRW.
    pub thread: [u32; 3],
    /// The guest address of `struct pt_regs` of what is interrupted; none: nothing is.
    pub interrupted: Option<u32>,
}

impl Outcome {
    /// Whether the function returned.
    pub fn returned(&self) -> bool {
        self.stop == "returned"
    }

    /// CPSR with which the big core goes on.
    pub fn status(&self) -> u32 {
        self.flags & REPORTED
    }
}

/// How a function ended in the executor, as a report on a suspend has it.
#[derive(Debug, Clone, Default, Serialize)]
pub struct End {
    /// Name of the reason for the stop.
    pub stop: String,
    /// The reason in a sentence.
    pub explanation: String,
    /// The instruction that it stopped at, when it did not return.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instruction: Option<String>,
    /// r0 to r15.
    pub registers: [u32; 16],
}

impl End {
    /// Of a run.
    pub(crate) fn of(outcome: &Outcome) -> End {
        End {
            stop: outcome.stop.clone(),
            explanation: outcome.explanation.clone(),
            instruction: outcome.instruction.clone(),
            registers: outcome.registers,
        }
    }
}

/// All runs of a report; `None` if it is not one.
pub fn parse(text: &str) -> Option<Vec<Outcome>> {
    let runs: Option<Vec<Outcome>> = text
        .lines()
        .filter(|line| line.starts_with("run "))
        .map(parse_line)
        .collect();
    runs.filter(|runs| !runs.is_empty())
}

/// `name value` pairs; registers, flags, accessed and word are hexadecimal, instruction is the rest.
fn parse_line(line: &str) -> Option<Outcome> {
    let (line, instruction) = match line.split_once(" instruction ") {
        Some((line, instruction)) => (line, Some(instruction.trim().to_owned())),
        None => (line, None),
    };
    let words: Vec<&str> = line.split_whitespace().collect();
    let pairs: BTreeMap<&str, &str> = words
        .chunks_exact(2)
        .map(|pair| (pair[0], pair[1]))
        .collect();
    let hexadecimal =
        |name: &str| -> Option<u32> { u32::from_str_radix(pairs.get(name)?, 16).ok() };
    let decimal = |name: &str| -> Option<u64> { pairs.get(name)?.parse().ok() };
    let mut registers = [0; 16];
    for (number, register) in registers.iter_mut().enumerate() {
        *register = hexadecimal(&format!("r{number}"))?;
    }
    let processor = || {
        Some(Processor {
            thread: [
                hexadecimal("tpidrurw")?,
                hexadecimal("tpidruro")?,
                hexadecimal("tpidrprw")?,
            ],
            interrupted: match decimal("interrupted")? {
                0 => None,
                _ => Some(hexadecimal("frame")?),
            },
        })
    };
    let (stop, explanation) = STOPS.get(usize::try_from(decimal("stop")?).ok()?)?;
    let counters = [
        "begin",
        "regions",
        "translated",
        "emitted",
        "cached",
        "flushes",
        "faults",
        "interpreted",
        "interrupts",
        "natives",
        "delay_us",
        "waited_us",
        "held",
    ];
    Some(Outcome {
        stop: (*stop).to_owned(),
        explanation: (*explanation).to_owned(),
        registers,
        flags: hexadecimal("flags")?,
        instructions: instructions_of(decimal("ticks")?),
        encoding: instruction.as_ref().and(hexadecimal("word")),
        instruction,
        accessed: hexadecimal("accessed"),
        processor: processor(),
        counters: counters
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), decimal(name)?)))
            .collect(),
    })
}

/// The timer counts 40 ns, an instruction takes 64 ns (`-icount shift=6`).
pub fn instructions_of(ticks: u64) -> u64 {
    (ticks * 5 + 4) / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_whole() {
        let registers: String = (0..16).map(|n| format!(" r{n} {n:08x}")).collect();
        let line = format!(
            "run 0 stop 6 ticks 16 begin 8{registers} flags 60000013 regions 2 translated 9 \
             emitted 1 cached 1 flushes 0 faults 1 interpreted 0 interrupts 0 natives 0 delay_us 0 \
             call0 0 accessed 00000004 word e5900004 instruction ldr r0, [r0, #4]\n"
        );
        let runs = parse(&line).unwrap();
        assert_eq!(runs[0].stop, "unmapped-read");
        assert_eq!(runs[0].instructions, 10);
        assert_eq!(runs[0].registers[15], 15);
        assert_eq!(runs[0].instruction.as_deref(), Some("ldr r0, [r0, #4]"));
        assert_eq!(runs[0].encoding, Some(0xe590_0004));
        assert_eq!(runs[0].processor, None);
        let line = line.replace(
            " call0",
            " interrupted 1 frame c0300000 tpidrurw 00000001 tpidruro 00000002 tpidrprw 00000003 call0",
        );
        let processor = Processor {
            thread: [1, 2, 3],
            interrupted: Some(0xc030_0000),
        };
        assert_eq!(parse(&line).unwrap()[0].processor, Some(processor));
        assert!(parse("nothing").is_none());
        assert!(parse("run 0 stop").is_none());
    }

    #[test]
    fn the_big_core_goes_on_with_ge_and_in_the_middle_of_an_it_block() {
        let registers: String = (0..16).map(|n| format!(" r{n} 0")).collect();
        let line = format!("run 0 stop 12 ticks 16 begin 8{registers} flags 860afcb3\n");
        assert_eq!(parse(&line).unwrap()[0].status(), 0x860a_fcb3);
    }
}
