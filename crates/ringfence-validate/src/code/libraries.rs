//! Libraries that do by their own methods what a program of the same name does: git, task runners, archives, templates, queues.

use std::rc::Rc;

use super::call::{Given, Place};
use super::fold;
use super::quick::{Listed, listed};
use super::role::{Role, RoleAct, Slot};
use super::value::{Field, Held, ITEMS, Value};
use super::walk::Walk;
use crate::analysis::{Contact, Fact, Flow, Trick};
use crate::text::{Hole, Piece, Text};

/// What was put into archives, as an attribute that no program has.
pub(super) const ARCHIVED: &str = "(archived)";
/// What a thread of work was given.
pub(super) const WORKER_DATA: &str = "(worker data)";
/// Whose a method is that was taken before it is called.
pub(super) const ITSELF: &str = "(itself)";
/// Who asked a server.
pub(super) const ANSWER: &str = "(answer)";

/// Decorators whose functions are handed something that runs commands, and what that is.
const TASKS: &[(&str, &str)] = &[
    ("invoke.task", "invoke.Context()"),
    ("fabric.task", "fabric.Connection()"),
    ("nox.session", "nox.Session()"),
    ("duty.duty", "duty.Context()"),
];

/// Classes whose fields are things of their own, each with a name and a value.
const ENUMS: &[&str] = &["enum.Enum", "enum.StrEnum", "enum.IntEnum", "enum.Flag", "enum.IntFlag"];

static QUEUES: Listed = Listed::new(|| {
    listed(&[
        "queue.Queue",
        "queue.LifoQueue",
        "queue.PriorityQueue",
        "queue.SimpleQueue",
        "asyncio.Queue",
        "asyncio.LifoQueue",
        "asyncio.PriorityQueue",
        "multiprocessing.Queue",
        "multiprocessing.SimpleQueue",
        "multiprocessing.JoinableQueue",
    ])
});

/// Calls that put a file or a folder into an archive.
static ARCHIVES: Listed = Listed::new(|| {
    listed(&[
        "zipfile.ZipFile().write",
        "tarfile.open().add",
        "tarfile.TarFile().add",
        "tarfile.TarFile.open().add",
        "py7zr.SevenZipFile().write",
        "py7zr.SevenZipFile().writeall",
        "archiver().directory",
        "archiver().file",
        "archiver().glob",
        "adm-zip().addLocalFile",
        "adm-zip().addLocalFolder",
    ])
});

impl Walk<'_, '_> {
    /// What a function of a library gives; nothing where it is not one of these.
    pub(super) fn by_library(&mut self, name: &str, given: &Given) -> Option<Value> {
        let first = given.args.first();
        self.by_database(name, given);
        self.template(name, given);
        self.by_talker(name, given);
        self.purpose(name, given);
        let uncalled = name.trim_end_matches("()");
        if let Some((_, handed)) = TASKS.iter().find(|(task, _)| uncalled == *task) {
            let handed = Rc::new(Value::named(handed));
            for number in given.args.iter().flat_map(|arg| arg.functions.iter()) {
                self.enter_function(*number, &[(0, Rc::clone(&handed))]);
            }
            return None;
        }
        if QUEUES.contains(name) {
            return Some(Value::list(Vec::new()));
        }
        if ARCHIVES.contains(name) {
            self.archived(&first?.readings());
            return None;
        }
        match name {
            "shutil.make_archive" => {
                let root = given
                    .args
                    .get(2)
                    .or_else(|| given.named.iter().find(|(known, _, _)| known == "root_dir").map(|(_, held, _)| held));
                let root = root.map_or_else(|| vec![Text::known(".")], |root| root.readings());
                self.archived(&root);
                None
            }
            "tar.c" | "tar.create" | "tar.r" | "tar.replace" | "tar.u" | "tar.update" => {
                let folder = given.slot(&Slot::Named("cwd")).map(|(folder, _)| folder);
                let mut all = Vec::new();
                for item in given.args.iter().filter_map(|arg| arg.items.as_ref()).flat_map(|items| items.iter()) {
                    let parts: Vec<Held> = folder.iter().cloned().chain([Rc::clone(item)]).collect();
                    all.extend(fold::path(&parts).readings());
                }
                for path in &all {
                    self.tell(given.span, Fact::Reads { path: path.clone() });
                }
                self.archived(&all);
                None
            }
            "require.resolve" | "import.meta.resolve" => self.resolved(first?),
            "ps-list" | "process-list.snapshot" | "systeminformation.processes" => Some(Self::processes()),
            // Each there is, and not the one that was asked for.
            "find-process"
                if given.args.get(1).is_some_and(|pattern| {
                    let open = |text: &Text| {
                        text.as_known().is_none_or(|known| known.chars().all(|letter| !letter.is_alphanumeric()))
                    };
                    pattern.number.is_none() && pattern.texts.iter().all(open)
                }) && first.and_then(|by| by.as_known()) != Some("port") =>
            {
                Some(Self::processes())
            }
            "concurrently" | "npm-run-all" | "npm-run-all2" => {
                let place = Place { span: given.span, literal: None };
                for item in first?.items.as_ref()?.iter().take(16) {
                    let line = item.field("command").unwrap_or_else(|| Rc::clone(item));
                    self.shell(Some((line, place)), &Given { span: given.span, ..Given::default() });
                }
                None
            }
            // Modules are looked for first where anybody may lay one.
            "sys.path.insert" | "sys.path.append" => {
                let shared = |text: &Text| {
                    let start = text.known_start();
                    ["/tmp/", "/var/tmp/", "/dev/shm/"].iter().any(|folder| start.starts_with(folder))
                        && !start.starts_with("/tmp/temporary")
                };
                if given.args.last()?.texts.iter().any(shared) {
                    self.trick(Trick::Redefines, given.span);
                }
                None
            }
            // Whoever asks calls it, with what they say.
            name if name.ends_with("XMLRPCServer().register_function") => {
                let mut asked = Value::default();
                asked.flows.add(&Flow::Network);
                let args = vec![Rc::new(asked)];
                let places = vec![Place { span: given.span, literal: None }];
                self.called(first?, None, &Given { args, places, span: given.span, ..Given::default() });
                None
            }
            "shelljs.ls" | "shelljs.find" => {
                let mut text = Text::default();
                text.push(Piece::Pattern("*".to_owned()));
                Some(Value::list(vec![Rc::new(Value::text(text))]))
            }
            "ipaddress.ip_network" | "ipaddress.IPv4Network" | "netaddr.IPNetwork" => {
                Some(Value::list(vec![Rc::new(Value { texts: first?.texts.clone(), ..Value::default() })]))
            }
            "ipaddress.ip_network().hosts" | "ipaddress.IPv4Network().hosts" | "netaddr.IPNetwork().iter_hosts" => {
                Some(Value::list(vec![Rc::new(given.receiver.as_ref()?.any_item())]))
            }
            "pkgutil.iter_modules" | "pkgutil.walk_packages" => {
                // The names of what lies there; which package it lies in is written before them, where that is asked for.
                let prefix = given
                    .args
                    .get(1)
                    .or_else(|| given.named.iter().find(|(known, _, _)| known == "prefix").map(|(_, held, _)| held));
                let mut text = Text::default();
                if let Some(known) = prefix.and_then(|prefix| prefix.as_known()) {
                    text.push(Piece::Known(known.to_owned()));
                }
                text.push(Piece::Hole(Hole::Value));
                let name = Rc::new(Value::text(text));
                let mut row = Value::list(vec![Held::default(), Rc::clone(&name), Held::default()]);
                row.fields = Some(Rc::new(vec![("name".into(), name)]));
                Some(Value::list(vec![Rc::new(row)]))
            }
            // What was imported by its name and lies there as it did is no more than it was.
            "importlib.reload" => {
                let module = first?;
                let last = |name: &Rc<str>| name.rsplit('.').next().unwrap_or(name).to_owned();
                let again = |name: &Rc<str>| {
                    let file = last(name);
                    !self.is_from_a_module(name)
                        || self.has_written(&format!("{file}.py"))
                        || self.has_written(&format!("{file}/__init__.py"))
                };
                if module.names.is_empty() || module.names.iter().any(again) {
                    self.trick(Trick::ByBuiltName, given.span);
                }
                None
            }
            // One after the other, as they are found there: neither written out nor asked for by somebody.
            "@aws-sdk/client-s3.DeleteObjectCommand" | "@aws-sdk/lib-dynamodb.DeleteCommand" => {
                let key = first?.field("Key")?;
                let told = |flow: &Flow| matches!(flow, Flow::Input);
                if key.texts.is_empty() && key.fields.is_none() && !key.flows.iter().any(told) {
                    self.destroys("objects", given);
                }
                None
            }
            // Objects, where they are asked for: whoever made the file says what is run.
            "numpy.load" => {
                let asked = given.slot(&Slot::At(2, Some("allow_pickle")));
                let own = self.is_kept_by_the_project(first?) || self.comes_from_the_project(first?);
                if asked.is_some_and(|(asked, _)| asked.truth != Some(false)) && !own {
                    self.trick(Trick::Deserialises, given.span);
                    if first?.flows.iter().any(|flow| matches!(flow, Flow::Network | Flow::Decoded)) {
                        self.tell(given.span, Fact::Executes { from: vec![Flow::Network] });
                    }
                }
                None
            }
            // Whatever lies below, by the pattern that is asked for.
            "pathlib.Path().rglob" => {
                let pattern = first.and_then(|first| first.as_known()).map(str::to_owned);
                let mut item = Value::named("pathlib.Path()");
                for path in given.receiver.as_ref()?.texts.iter() {
                    let mut path = path.clone();
                    if !path.known_end().ends_with('/') {
                        path.push(Piece::Known("/".to_owned()));
                    }
                    path.push(Piece::Pattern("**".to_owned()));
                    path.push(Piece::Known("/".to_owned()));
                    path.push(match &pattern {
                        Some(name) if !name.contains(['*', '?', '[']) => Piece::Known(name.clone()),
                        Some(pattern) => Piece::Pattern(pattern.clone()),
                        None => Piece::Hole(Hole::Value),
                    });
                    item.texts.push(path);
                }
                Some(Value::list(vec![Rc::new(item)]))
            }
            "pathlib.Path().iterdir" => {
                let outside = |path: &&Text| path.known_start().starts_with('/');
                let mut item = Value::named("pathlib.Path()");
                for path in given.receiver.as_ref()?.texts.iter().filter(outside) {
                    let mut path = path.clone();
                    path.push(Piece::Known("/".to_owned()));
                    path.push(Piece::Pattern("*".to_owned()));
                    item.texts.push(path);
                }
                (!item.texts.is_empty()).then(|| Value::list(vec![Rc::new(item)]))
            }
            "jinja2.Template" | "jinja2.Environment().from_string" | "string.Template" | "mako.template.Template" => {
                Some(Value { texts: first?.texts.clone(), ..Value::default() })
            }
            "jinja2.Template().render"
            | "jinja2.Environment().from_string().render"
            | "mako.template.Template().render"
            | "string.Template().substitute"
            | "string.Template().safe_substitute" => {
                let template = given.receiver.as_ref()?.as_known()?.to_owned();
                Some(self.filled(&template, given))
            }
            "mustache.render" | "ejs.render" | "nunjucks.renderString" | "handlebars.compile()" => {
                let template = first?.as_known()?.to_owned();
                Some(self.filled(&template, given))
            }
            "http.createServer" | "https.createServer" | "http2.createServer" | "http2.createSecureServer" => {
                let mut request = Value::default();
                request.flows.add(&Flow::Network);
                request.flows.add(&Flow::Input);
                self.serves(Rc::new(request), given);
                None
            }
            "Object.create" => {
                let mut made = Value::clone(first?);
                let described = given.args.get(1).and_then(|all| all.fields.clone()).unwrap_or_default();
                let mut fields: Vec<Field> = made.fields.iter().flat_map(|all| all.iter().cloned()).collect();
                fields.iter().take(ITEMS).for_each(|(key, held)| self.scopes.set_attribute(key, held));
                for (key, how) in described.iter().take(ITEMS) {
                    let read = how.field("get").filter(|read| !read.functions.is_empty());
                    let held = match read {
                        Some(read) => self.called(&read, None, &Given { span: given.span, ..Given::default() }),
                        None => how.field("value").unwrap_or_default(),
                    };
                    self.scopes.set_attribute(key, &held);
                    fields.push((Rc::clone(key), held));
                }
                let object = Value::object(fields);
                (made.fields, made.depth) = (object.fields, object.depth.max(made.depth));
                made.flows.add_all(&object.flows);
                Some(made)
            }
            "(answer).end" | "(answer).write" | "(answer).send" => {
                self.answers(first?, given);
                None
            }
            // A folder, or a file, for whoever asks.
            "(answer).sendFile"
            | "(answer).download"
            | "express.static"
            | "serve-static"
            | "koa-static"
            | "flask.send_from_directory"
            | "flask.send_file"
            | "starlette.staticfiles.StaticFiles"
            | "fastapi.staticfiles.StaticFiles" => {
                let told = given.named.iter().find(|(key, _, _)| matches!(key.as_str(), "directory" | "path_or_file"));
                let mut shown = Value::default();
                for path in told.map(|(_, held, _)| held).or(first)?.readings() {
                    shown.flows.add(&Flow::File { path: path.to_string() });
                }
                self.answers(&shown, given);
                None
            }
            "pathlib.Path().read_text" | "pathlib.Path().read_bytes" => {
                let texts = given.receiver.as_ref()?.texts.clone();
                texts.iter().for_each(|path| self.opens_a_home(path, given.span));
                None
            }
            "fs.readFile" | "fs.readFileSync" | "fs.promises.readFile" | "fs.createReadStream" => {
                first?.texts.iter().for_each(|path| self.opens_a_home(path, given.span));
                None
            }
            _ => self.by_git(name, given).or_else(|| self.searched(name, given)),
        }
    }

    /// A method that is taken and not called yet: it still knows whose it is, where that is a path.
    pub(super) fn bound_to(&self, found: Held, base: &Held) -> Held {
        let of_itself = |name: &Rc<str>| {
            let is_of_itself =
                |role: &Role| role.args.first() == Some(&Slot::Receiver) && !matches!(role.act, RoleAct::Path);
            self.book.roles(name).is_some_and(|roles| roles.iter().any(is_of_itself))
        };
        if base.texts.is_empty() || found.bound.is_some() || !found.names.iter().any(of_itself) {
            return found;
        }
        let itself = (ITSELF.to_owned(), Rc::new(Value { bound: None, ..Value::clone(base) }));
        Rc::new(super::call::bound(&found, Vec::new(), vec![itself]))
    }

    /// `trust_remote_code=True`: a model brings code of its own, and that is run.
    pub(super) fn trusts_code(&mut self, given: &Given) {
        let trusts = |(name, held, _): &&(String, Held, Place)| {
            let asked = || held.names.iter().any(|name| name.contains("parse_args()"));
            name == "trust_remote_code" && held.truth != Some(false) && !asked()
        };
        let unsafe_mode = |(name, held, _): &(String, Held, Place)| match name.as_str() {
            "safe_mode" => held.truth == Some(false),
            "allow_dangerous_deserialization" | "allow_dangerous_requests" => held.truth == Some(true),
            _ => false,
        };
        if given.named.iter().any(unsafe_mode) {
            self.trick(Trick::Deserialises, given.span);
        }
        if given.named.iter().any(|named| trusts(&named)) {
            self.tell(given.span, Fact::Executes { from: vec![Flow::Unknown] });
        }
    }

    fn archived(&mut self, paths: &[Text]) {
        let mut all = Value::default();
        for path in paths.iter().take(32) {
            for directory in &self.directories {
                let path = super::run::within(directory.as_ref(), path);
                all.flows.add(&Flow::File { path: path.to_string() });
            }
        }
        self.scopes.set_attribute(ARCHIVED, &Rc::new(all));
    }

    /// Where an archive is sent, all that was put into archives may be sent.
    pub(super) fn archive_within(&mut self, sent: &Value) -> Option<Held> {
        const ENDINGS: &[&str] = &[".zip", ".tar", ".tgz", ".gz", ".xz", ".bz2", ".7z", ".whl", ".temporary"];
        let is_buffer = |name: &Rc<str>| name.starts_with("io.BytesIO()") || name.starts_with("tempfile.");
        let is_archive = |flow: &Flow| match flow {
            Flow::File { path } => {
                ENDINGS.iter().any(|ending| path.ends_with(ending)) || path.starts_with("/tmp/temporary")
            }
            _ => false,
        };
        let ends = |text: &Text| ENDINGS.iter().any(|ending| text.known_end().ends_with(ending));
        (sent.names.iter().any(is_buffer) || sent.flows.iter().any(is_archive) || sent.texts.iter().any(ends))
            .then(|| self.scopes.attribute(ARCHIVED).cloned())?
    }

    /// Functions answer requests.
    pub(super) fn serves(&mut self, request: Held, given: &Given) {
        let answer = Rc::new(Value::named(ANSWER));
        for number in given.args.iter().flat_map(|arg| arg.functions.iter()) {
            self.enter_function(*number, &[(0, Rc::clone(&request)), (1, Rc::clone(&answer))]);
        }
    }

    /// Something is shown to whoever asks a server of the program.
    pub(super) fn answers(&mut self, shown: &Value, given: &Given) {
        // What is asked for may be any file of the folder.
        let folder = |path: &str| match path.find('…') {
            // Behind the root it may be any of the machine.
            Some(1) if path.starts_with('/') => Some("/".to_owned()),
            Some(at) => path.get(..at).map(|before| before.trim_end_matches('/').to_owned()),
            None => Some(path.to_owned()),
        };
        let sends: Vec<Flow> = shown
            .flows
            .iter()
            .filter_map(|flow| match flow {
                Flow::File { path } => Some(Flow::File { path: folder(path)? }),
                _ => None,
            })
            .collect();
        if !sends.is_empty() {
            self.tell(given.span, Fact::Contacts { place: Text::known("0.0.0.0"), contact: Contact::Listen, sends });
        }
    }

    /// A file, by its path or by what it holds, is laid where others keep files.
    pub(super) fn uploads(&mut self, slots: &[Option<(Held, Place)>], given: &Given) {
        let mut sent = Value::default();
        for (held, _) in slots.iter().flatten() {
            sent.flows.add_all(&held.flows);
            if held.texts.len() < 8 && held.names.iter().all(|name| !name.starts_with("open()")) {
                for text in &held.texts {
                    sent.flows.add(&Flow::File { path: text.to_string() });
                }
            }
            if let Some(archived) = self.archive_within(held) {
                sent.flows.add_all(&archived.flows);
            }
        }
        let sends = sent.flows.iter().filter(|flow| super::walk::matters(flow)).cloned().collect();
        self.tell(given.span, Fact::Contacts { place: Text::hole(Hole::Value), contact: Contact::Send, sends });
    }

    /// What the members of an enumeration are: each with its value and its name, and any of them where they are gone through.
    pub(super) fn enumerated(&mut self, bases: &[Held], fields: &mut [Field]) {
        if !bases.iter().any(|base| ENUMS.iter().any(|name| base.has(name))) {
            return;
        }
        let methods: Vec<Field> = fields.iter().filter(|(_, held)| !held.functions.is_empty()).cloned().collect();
        for (name, held) in fields.iter_mut().filter(|(name, held)| held.functions.is_empty() && !name.starts_with('_'))
        {
            let key = Rc::new(Value::known(&**name));
            self.scopes.set_attribute("value", held);
            let both = [("value".into(), Rc::clone(held)), ("name".into(), key)];
            let with = Value::object(both.into_iter().chain(methods.iter().cloned()).collect());
            let mut member = Value::clone(held);
            (member.fields, member.depth) = (with.fields, with.depth);
            *held = Rc::new(member);
        }
    }

    /// One member of an enumeration, whichever.
    pub(super) fn any_member(&self, class: &Value) -> Option<Value> {
        let fields = class.fields.as_ref()?;
        if !ENUMS.iter().any(|name| class.has(name)) {
            return None;
        }
        let mut any = Value::default();
        let members = fields.iter().filter(|(name, held)| held.functions.is_empty() && !name.starts_with('_'));
        members.take(ITEMS).for_each(|(_, held)| any.add(held));
        Some(any)
    }

    pub(super) fn is_the_environment(&self, value: &Value) -> bool {
        value.names.iter().any(|name| self.book.is_environment(name))
    }

    /// All variables, or each with its name.
    pub(super) fn variables(&mut self, environment: &Held, named: bool, span: crate::span::Span) -> Value {
        self.whole_environment(environment, span);
        let mut one = Value::text(Text::hole(Hole::Value));
        one.flows.add(&Flow::Environment);
        let one = Rc::new(one);
        let name = || Rc::new(Value::text(Text::hole(Hole::Value)));
        Value::list(vec![if named { Rc::new(Value::list(vec![name(), one])) } else { one }])
    }
}
