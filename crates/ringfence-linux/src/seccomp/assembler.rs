//! A small assembler of classic BPF that writes a program from its end to its beginning.
//!
//! Every target of a jump then exists before the jump does, so an offset is never patched, a loop cannot be written,
//! and a target beyond the reach of a conditional jump (255 instructions) gets a far jump in between.

use libc::sock_filter;

/// Where a jump can go: the number of instructions from it, inclusive, to the program's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Label(usize);

/// How a conditional jump compares the accumulator with its constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Test {
    Equal,
    AtLeast,
    AnyBitOf,
}

/// The instructions so far, last one first.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    backwards: Vec<sock_filter>,
}

impl Assembler {
    /// Ends the program with `value`; one instruction however often it is asked for.
    pub(super) fn answer(&mut self, value: u32) -> Label {
        let answer = statement(libc::BPF_RET | libc::BPF_K, value);
        match self.backwards.iter().position(|known| (known.code, known.k) == (answer.code, answer.k)) {
            Some(index) => Label(index + 1),
            None => self.push(answer),
        }
    }

    /// Loads the 32-bit word at `offset` of the data, then goes on with `next`.
    pub(super) fn load(&mut self, offset: u32, next: Label) -> Label {
        self.go_on_with(next);
        self.push(statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset))
    }

    /// Keeps the bits of `mask` only, then goes on with `next`.
    pub(super) fn mask(&mut self, mask: u32, next: Label) -> Label {
        self.go_on_with(next);
        self.push(statement(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, mask))
    }

    /// Goes to `yes` where the test holds, otherwise to `no`.
    pub(super) fn branch(&mut self, test: Test, value: u32, yes: Label, no: Label) -> Label {
        // The second far jump, where there is one, moves the first target one further away.
        let yes = self.bring_near(yes, 254);
        let no = self.bring_near(no, 255);
        let test = match test {
            Test::Equal => libc::BPF_JEQ,
            Test::AtLeast => libc::BPF_JGE,
            Test::AnyBitOf => libc::BPF_JSET,
        };
        let mut instruction = statement(libc::BPF_JMP | test | libc::BPF_K, value);
        // `bring_near` bounds both distances by 255.
        instruction.jt = self.distance(yes) as u8;
        instruction.jf = self.distance(no) as u8;
        self.push(instruction)
    }

    /// The program, first instruction first.
    pub(super) fn finish(mut self, start: Label) -> Vec<sock_filter> {
        self.go_on_with(start);
        self.backwards.reverse();
        self.backwards
    }

    fn go_on_with(&mut self, next: Label) {
        if self.distance(next) != 0 {
            self.far_jump(next);
        }
    }

    fn bring_near(&mut self, target: Label, reach: usize) -> Label {
        if self.distance(target) > reach { self.far_jump(target) } else { target }
    }

    fn far_jump(&mut self, target: Label) -> Label {
        // A program has at most 4096 instructions.
        let distance = self.distance(target) as u32;
        self.push(statement(libc::BPF_JMP | libc::BPF_JA, distance))
    }

    /// How many instructions an instruction written now would pass over to reach `target`.
    fn distance(&self, target: Label) -> usize {
        self.backwards.len() - target.0
    }

    fn push(&mut self, instruction: sock_filter) -> Label {
        self.backwards.push(instruction);
        Label(self.backwards.len())
    }
}

fn statement(code: u32, k: u32) -> sock_filter {
    // All codes of classic BPF fit in 16 bits.
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}
