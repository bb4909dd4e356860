//! What JavaScript programs hand to somebody unknown, hold by two names, throw, or make of text.

use crate::code::told::{facts, hostile, ordinary};
use crate::language::Language;

fn check(source: &str) {
    hostile(Language::JavaScript, &format!("const cp = require('child_process'); {source}"), &["shell id -u"]);
}

fn check_ordinary(source: &str) {
    ordinary(Language::JavaScript, source);
    let lines = facts(Language::JavaScript, source);
    assert!(!lines.iter().any(|line| line.starts_with("shell")), "{lines:#?} in\n{source}");
}

#[test]
fn what_somebody_unknown_hands_on_may_act_when_it_is_called() {
    for source in [
        "Object.getOwnPropertyDescriptor(cp, 'execSync').value('id -u')",
        "Object.getOwnPropertyDescriptors(cp).execSync.value('id -u')",
        "Reflect.get(cp, 'execSync')('id -u')",
        "Reflect.apply(cp.execSync, null, ['id -u'])",
        "Object.values(cp)[0]('id -u')",
        "Object.entries(cp).find(([k]) => k === 'execSync')[1]('id -u')",
        "Object.create(cp).execSync('id -u')",
        "const o = {}; Object.setPrototypeOf(o, cp); o.execSync('id -u')",
        "const o = { __proto__: cp }; o.execSync('id -u')",
        "const o = {}; Object.assign(o, { go: cp.execSync }); o.go('id -u')",
        "const o = {}; Object.defineProperty(o, 'x', { value: cp.execSync }); o.x('id -u')",
        "const o = {}; Object.defineProperty(o, 'x', { get() { return cp.execSync } }); o.x('id -u')",
        "new Proxy({}, { get: () => cp.execSync }).anything('id -u')",
        "const { execSync: { call: c } } = cp; c.call(cp.execSync, null, 'id -u')",
        "require('lodash').memoize(cp.execSync)('id -u')",
        "const e = new (require('events'))(); e.on('x', cp.execSync); e.emit('x', 'id -u')",
        "[cp.execSync][Symbol.iterator]().next().value('id -u')",
        "Array.from({ length: 1 }, () => cp.execSync)[0]('id -u')",
        "function go(c) { cp.execSync(c) } require('lodash').memoize(go)('id -u')",
        "new Promise((r) => r(cp.execSync)).then((f) => f('id -u'))",
    ] {
        check(source);
    }
}

#[test]
fn an_array_by_two_names_is_one_array() {
    for source in [
        "const a = []; const b = a; b.push(cp.execSync); a[0]('id -u')",
        "const a = [0]; const b = a; b[0] = cp.execSync; a[0]('id -u')",
        "const a = []; Array.prototype.push.call(a, cp.execSync); a[0]('id -u')",
        "const a = []; [].push.apply(a, [cp.execSync]); a[0]('id -u')",
        "const a = [1, 2]; a.splice(0, 1, cp.execSync); a[0]('id -u')",
        "const a = ['ls']; const b = a; b[0] = 'id -u'; cp.execSync(a[0])",
        "function put(box) { box.push(cp.execSync) } const box = []; put(box); box[0]('id -u')",
        "let x = []; { let b = x; { let x = b; x.push(cp.execSync) } } x[0]('id -u')",
    ] {
        check(source);
    }
    check_ordinary("const a = []; const b = a; b.push(console.log); a[0]('rm -rf /')");
    check_ordinary("const a = {}; const b = a; b.x = Math.max; console.log(a.x(1, 2))");
}

#[test]
fn a_function_made_of_text_is_given_what_it_is_called_with() {
    for source in [
        "new Function('r', 'r(\"child_process\").execSync(\"id -u\")')(require)",
        "Function('a', 'b', 'a(b)')(cp.execSync, 'id -u')",
        "new Function('return arguments[0](\"id -u\")')(cp.execSync)",
        "eval('(f) => f(\"id -u\")')(cp.execSync)",
        "require('vm').runInNewContext('c(\"id -u\")', { c: cp.execSync })",
        "const vm = require('vm'); new vm.Script('f(\"id -u\")').runInNewContext({ f: cp.execSync })",
    ] {
        check(source);
    }
    check_ordinary("const add = new Function('a', 'b', 'return a + b'); console.log(add('rm -rf', '/'))");
    check_ordinary("console.log(require('vm').runInNewContext('a + 1', { a: 1 }))");
}

#[test]
fn what_is_thrown_or_gone_through_is_followed() {
    for source in [
        "try { throw cp.execSync } catch (f) { f('id -u') }",
        "try { throw { f: cp.execSync } } catch ({ f }) { f('id -u') }",
        "const it = { *[Symbol.iterator]() { yield cp.execSync } }; const [f] = it; f('id -u')",
        "class S { *[Symbol.iterator]() { yield cp.execSync } } for (const f of new S()) f('id -u')",
        "function tag(strings, f) { return f(strings[0]) } tag`id -u${cp.execSync}`",
        "function* g() { const f = yield; f('id -u') } const it = g(); it.next(); it.next(cp.execSync)",
    ] {
        check(source);
    }
    check_ordinary("try { throw new TypeError('rm -rf /') } catch ({ message }) { console.log(message) }");
    check_ordinary("const tag = (s, ...v) => s.raw.join('|') + v.join(','); console.log(tag`rm -rf /${1}`)");
    check_ordinary("const e = new (require('events'))(); e.on('x', console.log); e.emit('x', 'rm -rf /')");
}
