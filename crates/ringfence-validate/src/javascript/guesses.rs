//! How often the parser may read the same place.
//!
//! TypeScript cannot be read from left to right: whether `a<b, (c` is a comparison or a list of types is known at the end alone. The parser
//! tries one, and where it comes to nothing goes back and reads on in another way. What lies inside is guessed at anew each time, so some
//! hundred bytes are enough for hours. Here the tries are counted before anything is parsed.

/// The bytes that are read, each as often as it may be. The longest program of the usual kind has a tenth of it.
const MOST: u64 = 8 * 1024 * 1024;
/// What one guess leads to beside the first way: the other one, one more where an interface extends something, and two more after `new`.
const OTHER_WAYS: u64 = 3;

/// The guesses before each place.
#[derive(Debug)]
pub(super) struct Guesses {
    /// The ways into what is open, and the guesses in it so far: of each bracket around.
    open: Vec<(u64, u64)>,
    ways: u64,
    here: u64,
    /// Whether a round bracket was opened where a type may stand, and only words came since. Before it is known for the brackets of a
    /// function's type, a pattern in it is read to its end.
    may_be_parameters: bool,
    read: u64,
}

impl Guesses {
    pub(super) fn new() -> Self {
        Self { open: Vec::new(), ways: 1, here: 0, may_be_parameters: false, read: 0 }
    }

    /// The next `bytes` that belong together.
    pub(super) fn read(&mut self, bytes: usize) {
        let ways = self.ways.saturating_mul(1 + OTHER_WAYS * self.here);
        self.read = self.read.saturating_add(ways.saturating_mul(bytes as u64));
    }

    /// How the next token begins.
    pub(super) fn token(&mut self, byte: u8) {
        let goes_on = byte.is_ascii_alphabetic() || byte >= 0x80 || b"_$#\\([{".contains(&byte);
        self.may_be_parameters &= goes_on;
    }

    /// A bracket opens. `after_value` says that it can only be one of a call or an index.
    pub(super) fn open(&mut self, bracket: u8, after_value: bool) {
        self.open.push((self.ways, self.here));
        self.ways = self.ways.saturating_mul(1 + OTHER_WAYS * self.here);
        if self.may_be_parameters && bracket != b'(' {
            self.ways = self.ways.saturating_mul(1 + OTHER_WAYS);
        }
        self.here = 0;
        self.may_be_parameters = bracket == b'(' && !after_value;
    }

    pub(super) fn close(&mut self) {
        if let Some((ways, here)) = self.open.pop() {
            (self.ways, self.here) = (ways, here);
        }
    }

    /// A `<`, or a word after which types are guessed at.
    pub(super) fn guess(&mut self) {
        self.here += 1;
    }

    /// A `>`: whatever the last guess was, it is over.
    pub(super) fn known(&mut self) {
        self.here = self.here.saturating_sub(1);
    }

    /// The next statement, or something else that stands in no type: every guess is over.
    pub(super) fn no_type(&mut self) {
        self.here = 0;
    }

    /// Whether all of it may be read.
    pub(super) fn are_few(&self) -> bool {
        self.read <= MOST
    }
}

#[cfg(test)]
mod tests {
    use oxc_allocator::Allocator;
    use oxc_parser::Parser;
    use oxc_span::SourceType;

    use super::super::bounds::{Elements, Types, check};
    use crate::limits::Limits;

    /// Beginnings that guesses nest with.
    const FAMILIES: &[&str] = &[
        "a<b,(c=",
        "a<b,[c=",
        "a<b,({c=",
        "a<{c(d=",
        "a<b<c<d,(e=",
        "a<(b=",
        "a as ({b=",
        "a as ([b=",
        "a as (public {b=",
        "a as (public/*{*/\n{b=",
        "a as new ({b=",
        "a<<T>({b=",
        "x=(a?(b):c=>",
        "(a=",
        "({a=",
        "async({a=",
        "a?(b=",
        "a?(b):(c=",
        "a?async(b=",
        "<T,>(a=",
        "<T=",
        "<a>(b=",
        "function f(a:infer T extends (b:",
        "let a:b extends infer T extends (c:",
        "(a:b extends infer T extends [",
        "interface a extends b<(c=function(){",
        "class a extends b<(c=",
        "class a<T extends (b=",
        "new a<(b=",
        "a?.<(b=",
        "a`${b<(c=",
        "a<`${b<(c=",
        "a<typeof b<(c=",
        "a<import('b',{with:",
        "a<b[c<(d=",
        "a.b<c,(d=",
        "f(a<b,(c=",
        "if(a<(b=",
        "@a<(b=",
        "enum a{b=c<(d=",
        "type a=({b=c as (",
        "for(a of b<(c=",
        "a!<b,(c=",
        "a<b&(c=",
        "a<b|{c:(d=",
        "a<(b?:c)=>d,(e=",
        "declare function f(a=b<(",
        "let {a=b<(c=",
        "export default a<(b=",
    ];

    /// Programs of the usual kind that nest.
    const ORDINARY: &[&str] = &[
        "const a: Map<string, Array<Promise<Record<string, Set<(b: Partial<{ c: D<E<F>> }>) => G<H>>>>>> = new Map();",
        "for (let i = 0; i < n; i++) { if (a < b && (c < d || (e < f && (g < h || i < (j < k ? 1 : 2))))) { run(); } }",
        "const a = x < y\nconst b = y < z\nconst c = z < x\ncall(() => { const d = a < b\n return [d < c, (c < d)] })",
        "export const s = z.object({ a: z.object({ b: z.array(z.object({ c: z.union([z.string(), z.object({ d: z.map(z.string(), z.object({ e: z.any() })) })]) })) }) });",
        "type A<T> = T extends Array<infer U extends B<infer V>> ? U extends (infer W)[] ? C<U, V, W> : D<U> : never;",
        "const f = <T extends Record<string, unknown>,>({ a, b: { c = 1 } = {} }: P<T>): Q<T> => ({ a, d: ({ e }: R<T>) => ({ e }) });",
        "new Promise<void>((done) => new Foo<Bar<Baz>>(new Map<string, () => void>([['a', () => new Set<number>()]])));",
    ];

    fn types(text: &str) -> Result<Types, &'static str> {
        check(text, &Limits::default(), Elements::None)
    }

    #[test]
    fn what_is_within_the_bounds_is_parsed_in_no_time_however_its_guesses_nest() {
        for family in FAMILIES {
            for depth in 1..64 {
                let text = family.repeat(depth);
                if types(&text) == Ok(Types::May) {
                    Parser::new(&Allocator::default(), &text, SourceType::ts()).parse();
                }
            }
        }
    }

    #[test]
    fn guesses_within_guesses_are_too_many_and_those_of_ordinary_programs_are_not() {
        for family in ["a<b,(c=", "a<{c(d=", "a<(b=", "a as ({b=", "a as (public/*{*/\n{b=", "new a<(b=", "f(a<b,(c="] {
            assert_eq!(types(&family.repeat(30)), Ok(Types::TooManyGuesses), "{family}");
        }
        // What hides a bracket, or closes nothing, makes none of them fewer.
        for family in [
            "a<b,(c&&d<e,(f=",
            "a<b,(')',c=",
            "a<b,(/)/,c=",
            "a<b,(/*)*/c=",
            "a<b,(`)`,c=",
            "a<b,('>',c=",
            "a<b,(c=>d,e=",
        ] {
            assert_eq!(types(&family.repeat(30)), Ok(Types::TooManyGuesses), "{family}");
        }
        for text in ORDINARY {
            assert_eq!(types(text), Ok(Types::May), "{text}");
            assert_eq!(types(&format!("{text}\n").repeat(2_000)), Ok(Types::May), "{text}");
        }
    }

    #[test]
    fn a_long_text_behind_a_few_guesses_is_too_much_too() {
        let long = |guesses: usize| format!("{}'{}'", "a<b,(c=".repeat(guesses), "x".repeat(500_000));
        assert_eq!(types(&long(8)), Ok(Types::TooManyGuesses));
        assert_eq!(types(&long(1)), Ok(Types::May));
    }
}
