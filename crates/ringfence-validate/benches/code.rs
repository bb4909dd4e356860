//! Measures reading programs of 500 lines, and hostile texts of a megabyte. `cargo bench -p ringfence-validate --bench code`.

#![allow(clippy::print_stdout, reason = "a benchmark reports on stdout")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use ringfence_validate::{Language, Limits, Subject, Surroundings, analyse};

const ROUNDS: usize = 200;
const MEGABYTE: usize = 1024 * 1024;

fn main() {
    for (name, language, source) in [
        ("python_500_lines_us", Language::Python, python()),
        ("javascript_500_lines_us", Language::JavaScript, javascript()),
        ("typescript_500_lines_us", Language::TypeScript, javascript()),
    ] {
        read(language, &source);
        let mut times: Vec<Duration> = (0..ROUNDS).map(|_| read(language, &source)).collect();
        times.sort_unstable();
        let median = times.get(ROUNDS / 2).copied().unwrap_or_default();
        println!(
            "{name} {:.1} us ({} lines, {} bytes)",
            median.as_secs_f64() * 1e6,
            source.lines().count(),
            source.len()
        );
    }
    for (language, texts) in [(Language::Python, hostile_python()), (Language::JavaScript, hostile_javascript())] {
        let mut slowest = (Duration::ZERO, String::new());
        for text in texts {
            let start: String = text.chars().take(16).collect();
            let source: String = text.chars().cycle().take(MEGABYTE).collect();
            let time = read(language, &source);
            println!("{language:?} {start:?} {:.1} ms", time.as_secs_f64() * 1e3);
            if time > slowest.0 {
                slowest = (time, start);
            }
        }
        println!("{language:?}_hostile_megabyte_ms {:.1} ms ({:?})", slowest.0.as_secs_f64() * 1e3, slowest.1);
    }
}

fn read(language: Language, source: &str) -> Duration {
    let (surroundings, limits) = (Surroundings::default(), Limits::default());
    let start = Instant::now();
    black_box(analyse(black_box(Subject::Code { language, source }), &surroundings, &limits));
    start.elapsed()
}

fn python() -> String {
    let part = "import os\nimport json\nfrom pathlib import Path\nimport requests\n\n\nclass Store:\n    \"\"\"Keeps things.\"\"\"\n\n    def __init__(self, root: Path, limit: int = 10) -> None:\n        self.root = root\n        self.items: dict[str, list[int]] = {}\n\n    def load(self, name: str) -> list[int]:\n        path = self.root / f\"{name}.json\"\n        if not path.exists():\n            return []\n        with open(path) as file:\n            data = json.load(file)\n        self.items[name] = [int(value) for value in data[\"values\"] if value is not None]\n        return sorted(self.items[name], key=lambda value: -value)\n\n    def fetch(self, page: int) -> None:\n        answer = requests.get(\"https://api.example.com/items\", params={\"page\": page}, timeout=10)\n        answer.raise_for_status()\n        for item in answer.json()[\"items\"]:\n            self.items.setdefault(item[\"name\"], []).append(item[\"value\"])\n            print(\"%s: %d\" % (item[\"name\"], len(self.items)))\n\n\ndef main() -> None:\n    store = Store(Path(os.environ.get(\"ROOT\", \".\")))\n    for name in [\"a\", \"b\", \"c\"]:\n        print(name, sum(store.load(name)) / max(len(store.items), 1))\n\n\n";
    part.repeat(500 / part.lines().count())
}

fn javascript() -> String {
    let part = "import fs from 'node:fs';\nimport path from 'node:path';\nimport express from 'express';\n\nconst app = express();\nconst settings = { root: process.env.ROOT ?? '.', limit: 10 };\n\nclass Store {\n  #items = new Map();\n  constructor(root) {\n    this.root = root;\n  }\n\n  load(name) {\n    const file = path.join(this.root, `${name}.json`);\n    if (!fs.existsSync(file)) return [];\n    const data = JSON.parse(fs.readFileSync(file, 'utf8'));\n    const values = data.values.filter((value) => value !== null).map((value) => Number(value) * 2);\n    this.#items.set(name, values);\n    return values.sort((a, b) => b - a);\n  }\n\n  async fetch(page) {\n    const answer = await fetch(`https://api.example.com/items?page=${page}`, { headers: { accept: 'application/json' } });\n    for (const { name, value } of (await answer.json()).items) {\n      this.#items.set(name, [...(this.#items.get(name) ?? []), value]);\n      console.log('%s: %d', name, this.#items.size);\n    }\n  }\n}\n\napp.get('/items/:name', async (request, response) => {\n  const store = new Store(settings.root);\n  try {\n    await store.fetch(1);\n    response.json({ name: request.params.name, values: store.load(request.params.name) });\n  } catch (error) {\n    response.status(500).json({ error: String(error) });\n  }\n});\n\n";
    // Each part in a block of its own, but for the imports, which stand at the top.
    let (imports, rest) = part.split_at(part.find("const app").unwrap_or_default());
    format!("{imports}{}", format!("{{\n{rest}}}\n").repeat(500 / rest.lines().count()))
}

fn hostile_python() -> Vec<&'static str> {
    vec![
        "(",
        "[",
        "f(",
        "-",
        "not ",
        "lambda: ",
        "x = 1\n",
        "x = x + 'a'\n",
        "x = [x, x]\n",
        "x += 'aaaaaaaa'\n",
        "f'{f'{",
        "a.b.c(d)\n",
        "import a.b as c\n",
        "'",
        "\"\"\"",
        "@a\n",
        "os.system('a' + x)\n",
        "exec('exec(1)')\n",
        "x = x.replace('a', 'aaaa')\n",
        "def f(a): return f(a)\n",
        "if x: y = x\n",
        "d['a'] = d\n",
        " (\n",
        "x = {'a': x, **x}\n",
        "[a for a in x]\n",
        "x, y = y, x\n",
        "class A:\n x = A\n",
        "s = '%s' % s\n",
        "s = ''.join([s, s])\n",
        "s = s[::-1] + s\n",
    ]
}

fn hostile_javascript() -> Vec<&'static str> {
    vec![
        "(",
        "[",
        "{",
        "f(",
        "!",
        "typeof ",
        "a=>",
        "`${",
        "x = 1;",
        "x = x + 'a';",
        "x = [x, x];",
        "x += 'aaaaaaaa';",
        "a.b.c(d);",
        "import a from 'b';",
        "'",
        "/",
        "<a>",
        "<a>{",
        "require('a' + x);",
        "eval('eval(1)');",
        "x = x.replace('a', 'aaaa');",
        "function f(a) { return f(a) }",
        "if (x) y = x;",
        "d['a'] = d;",
        "/*",
        "({a: x, ...x});",
        "x = {a: x, ...x};",
        "[x, y] = [y, x];",
        "class A { x = A }",
        "s = `${s}${s}`;",
        "x.then(y => x);",
        "a ? b : ",
        "if(a);else ",
        "a\n",
    ]
}
