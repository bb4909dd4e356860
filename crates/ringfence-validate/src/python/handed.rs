//! What Python programs hand to somebody unknown, hold by two names, throw, send, or find by a part of a name.

use crate::code::told::{facts, hostile, ordinary};
use crate::language::Language;

fn check(source: &str, expected: &[&str]) {
    hostile(Language::Python, source, expected);
}

fn check_ordinary(source: &str) {
    ordinary(Language::Python, source);
    let lines = facts(Language::Python, source);
    assert!(!lines.iter().any(|line| line.starts_with("shell")), "{lines:#?} in\n{source}");
}

#[test]
fn what_somebody_unknown_hands_on_may_act_when_it_is_called() {
    for source in [
        "import inspect, os; inspect.unwrap(os.system)('id -u')",
        "import functools, os; functools.lru_cache(os.system)('id -u')",
        "import functools, os; functools.wraps(len)(os.system)('id -u')",
        "import functools, os; functools.reduce(getattr, ['path', 'os', 'system'], os)('id -u')",
        "import collections, os; collections.namedtuple('T', 'f')(os.system).f('id -u')",
        "import contextlib, os; contextlib.nullcontext(os.system).__enter__()('id -u')",
        "import os, queue; q = queue.Queue(); q.put(os.system); q.get()('id -u')",
        "import os; max([os.system], key=str)('id -u')",
        "import os; property(os.system).fget('id -u')",
        "import os; staticmethod(os.system).__func__('id -u')",
        "import os; os.system.__call__('id -u')",
        "import os, string; string.Formatter().get_field('0.system', [os], {})[0]('id -u')",
        "import os, inspect; dict(inspect.getmembers(os))['system']('id -u')",
        "import pkgutil; pkgutil.resolve_name('os:system')('id -u')",
        "import sys; [m for n, m in sys.modules.items() if n == 'os'][0].system('id -u')",
        "import importlib.util as u; u.module_from_spec(u.find_spec('os')).system('id -u')",
        "import os, random; random.choice([print, len, str, int, float, bool, list, dict, set, os.system])('id -u')",
        "import os, random; random.choice([dict, os.system])('id -u')",
        "import inspect, os\ndef go(c):\n    os.system(c)\ninspect.unwrap(go)('id -u')",
        "import os, json\njson.dumps = os.system\njson.dumps('id -u')",
        "import os\nfrom unittest import mock\nwith mock.patch('builtins.print', os.system):\n    print('id -u')",
        "import os; exec(\"f('id -u')\", {'f': os.system})",
    ] {
        check(source, &["shell id -u"]);
    }
}

#[test]
fn what_is_handed_on_and_does_nothing_stays_ordinary() {
    for source in [
        "import inspect, json; print(inspect.unwrap(json.dumps)({'a': 'rm -rf /'}))",
        "import functools; print(functools.lru_cache(len)('rm -rf /'))",
        "import collections; print(collections.namedtuple('P', 'x y')(1, 2).x)",
        "import queue; q = queue.Queue(); q.put(print); q.get()('rm -rf /')",
        "import types; print(isinstance(len, types.FunctionType))",
        "import sys; print(sys.modules[__name__].__doc__)",
        "import unittest.mock as m; print(m.Mock(side_effect=len)('rm -rf /'))",
        "import os, inspect; print([n for n, v in inspect.getmembers(os) if n.startswith('O_')])",
        "import subprocess, threading\nt = threading.Thread(target=subprocess.run, args=(['make'],))\nt.start()\nt.join()",
        "import functools, subprocess\n@functools.wraps(subprocess.run)\ndef run(*a):\n    print(a)\nrun('rm -rf /')",
    ] {
        check_ordinary(source);
    }
}

#[test]
fn a_list_by_two_names_is_one_list() {
    for source in [
        "import os; a = [print]; b = a; b[0] = os.system; a[0]('id -u')",
        "import os; a = []; b = a; b.append(os.system); a[0]('id -u')",
        "import os; a = []; b = a; b += [os.system]; a[0]('id -u')",
        "import os; a = [1, 2]; a[0:1] = [os.system]; a[0]('id -u')",
        "import os; a = [1, 2]; b = a; b[:] = [os.system]; a[0]('id -u')",
        "import os; a = [[0]]; b = a[0]; b[0] = os.system; a[0][0]('id -u')",
        "import os; a = []; list.append(a, os.system); a[0]('id -u')",
        "import heapq, os; a = []; heapq.heappush(a, os.system); a[0]('id -u')",
        "import os; s = set(); t = s; t.add(os.system); s.pop()('id -u')",
        "import os; d = {}; e = d; e[1] = os.system; d[1]('id -u')",
        "import os; d = {}; e = d; e |= {'x': os.system}; d['x']('id -u')",
        "import os; d = {}; d.setdefault('x', []).append(os.system); d['x'][0]('id -u')",
        "import os; a = ['ls']; b = a; b[0] = 'id -u'; os.system(a[0])",
        "import os\ndef put(box):\n    box.append(os.system)\nbox = []\nput(box)\nbox[0]('id -u')",
        "import os\na = []\ndef f():\n    a.append(os.system)\nb = a\nf()\nb[0]('id -u')",
        "import os\ndef mk():\n    return [None]\nc = mk()\nd = mk()\nd[0] = os.system\nc[0] = print\nd[0]('id -u')",
        "import os\nif x:\n    a = []\n    b = a\n    b.append(os.system)\na[0]('id -u')",
    ] {
        check(source, &["shell id -u"]);
    }
    check("import subprocess; a = ['ls', '-l']; b = a; b[:] = ['id', '-u']; subprocess.run(a)", &["command id -u"]);
    check(
        "import subprocess\ndef put(box):\n    box.append('-u')\nb = ['id']\nput(b)\nsubprocess.run(b)",
        &["command id -u"],
    );
    check("import subprocess; a = ['-u', 'id']; a.reverse(); subprocess.run(a)", &["command id -u"]);
}

#[test]
fn lists_that_are_not_the_same_are_not_mixed_up() {
    let seen = facts(
        Language::Python,
        "import subprocess\none = ['rm', '-rf']\none.append('build')\nsubprocess.run(one)\ntwo = ['ls']\ntwo.append('/')\nsubprocess.run(two)",
    );
    assert!(!seen.iter().any(|line| line.starts_with("command rm") && line.ends_with(" /")), "{seen:#?}");
    let seen = facts(
        Language::Python,
        "import subprocess\nBASE = ['rm', '-rf']\ndef run(*words):\n    cmd = list(BASE)\n    cmd.extend(words)\n    subprocess.run(cmd)\nrun('build')\nrun('dist')",
    );
    assert!(seen.iter().any(|line| line == "command rm -rf build"), "{seen:#?}");
    check_ordinary("a = [1]; b = a; b[0] = print; a[0]('rm -rf /')");
    check_ordinary(
        "def fill(box, items):\n    for item in items:\n        box.append(item)\nbox = []\nfill(box, ['rm -rf /'])\nprint(box[0])",
    );
}

#[test]
fn an_attribute_by_a_part_of_its_name_is_any_that_fits() {
    for source in [
        "import os, sys\nclass J:\n    __clean = os.system\n    def go(self, part):\n        getattr(self, f'_J__cl{part}')('id -u')\nJ().go(sys.argv[1])",
        "import os, sys\nclass J:\n    def __init__(self):\n        self.do_run = os.system\n    def go(self, name):\n        getattr(self, 'do_' + name)('id -u')\nJ().go(sys.argv[1])",
        "import os, sys\nclass J:\n    def do_run(self, c):\n        os.system(c)\n    def go(self, name):\n        getattr(self, 'do_' + name)('id -u')\nJ().go(sys.argv[1])",
    ] {
        check(source, &["shell id -u"]);
    }
    check_ordinary(
        "import os, sys\nclass J:\n    def __init__(self):\n        self.do_show = print\n        self.run = os.system\n    def go(self, name):\n        getattr(self, 'do_' + name)('rm -rf /')\nJ().go(sys.argv[1])",
    );
}

#[test]
fn what_is_thrown_sent_or_made_on_the_way_is_followed() {
    for source in [
        "import os\ntry:\n    raise ValueError(os.system)\nexcept ValueError as e:\n    e.args[0]('id -u')",
        "import os\ndef co():\n    f = yield\n    f('id -u')\ng = co()\nnext(g)\ng.send(os.system)",
        "import os\nclass D:\n    def __get__(self, o, t):\n        return os.system\nclass A:\n    run = D()\nA().run('id -u')",
        "import os\nclass It:\n    def __iter__(self):\n        yield os.system\nfor f in It():\n    f('id -u')",
        "import os\nclass It:\n    def __getitem__(self, i):\n        return os.system\nIt()[0]('id -u')",
        "import collections, os\nd = collections.defaultdict(lambda: os.system)\nd['x']('id -u')",
        "import os\nclass A:\n    def __init_subclass__(cls, **kw):\n        kw['f'](kw['c'])\nclass B(A, f=os.system, c='id -u'):\n    pass",
        "import os\nclass M(type):\n    def __new__(m, name, bases, ns):\n        os.system(ns['cmd'])\nclass A(metaclass=M):\n    cmd = 'id -u'",
        "import os\nfrom dataclasses import field\nclass J:\n    fs: list = field(default_factory=lambda: [os.system])\nJ().fs[0]('id -u')",
    ] {
        check(source, &["shell id -u"]);
    }
    for source in [
        "try:\n    raise ValueError('rm -rf /', 3)\nexcept ValueError as e:\n    print(e.args[0])",
        "class Lazy:\n    def __init__(self, fn):\n        self.fn = fn\n    def __get__(self, o, t):\n        return self.fn(o)\nclass P:\n    @Lazy\n    def title(self):\n        return 'rm -rf /'\nprint(P().title)",
        "import collections\nd = collections.defaultdict(list)\nd['a'].append('rm -rf /')\nprint(d)",
        "class A:\n    def __init_subclass__(cls, **kw):\n        super().__init_subclass__()\nclass B(A, tag='rm -rf /'):\n    pass",
    ] {
        check_ordinary(source);
    }
}
