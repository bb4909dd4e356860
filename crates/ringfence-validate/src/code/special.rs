//! Calls that no line of a book can tell of: those that make containers, take things apart, or call something for each item.

use std::rc::Rc;

use super::call::{Given, Place};
use super::fold;
use super::heap::Made;
use super::left::goes_out;
use super::lists;
use super::quick::{Listed, listed};
use super::tree::{Arg, Kind};
use super::value::{ANY_KEY, Held, ITEMS, Making, Value};
use super::walk::Walk;
use crate::analysis::{Flow, Trick};
use crate::span::Span;
use crate::text::{Hole, Piece, Text};

/// Items that a function is called for one by one.
const EACH: usize = 256;
/// The same, of things that are not wholly known.
const FEW: usize = 16;
/// Functions that put two texts together.
const ADDS: &[&str] = &["operator.add", "operator.concat", "operator.iadd", "operator.iconcat", "str.__add__"];
/// Calls that make an object of their arguments.
static CONTAINERS: Listed = Listed::new(|| {
    listed(&[
        "dict",
        "types.SimpleNamespace",
        "argparse.Namespace",
        "collections.OrderedDict",
        "collections.defaultdict",
        "collections.ChainMap",
        "collections.UserDict",
        "Map",
        "WeakMap",
        "Object.fromEntries",
    ])
});

/// Programs as functions of that library.
const PLUMBED: &str = "plumbum.cmd.";

/// Functions that promises of the program bring.
const RESOLVED: &str = "(resolved)";

/// Whether it is how a server of that library is told who answers a request.
fn is_route(name: &str) -> bool {
    let Some((server, method)) = name.rsplit_once('.') else { return false };
    matches!(method, "get" | "post" | "put" | "patch" | "delete" | "all" | "use" | "route")
        && server.ends_with("()")
        && ["express", "fastify", "polka", "restify", "hono", "Hono", "koa", "Router"]
            .iter()
            .any(|library| server.trim_start_matches("new ").starts_with(library))
}

impl Walk<'_, '_> {
    /// An object or a list that a call makes of its arguments.
    pub(super) fn container(&mut self, callee: &Value, given: &Given) -> Option<Held> {
        let acts = |name: &Rc<str>| self.book.roles(name).is_some_and(super::act::acts);
        if !callee.names.iter().any(|name| CONTAINERS.contains(&**name)) || callee.names.iter().any(acts) {
            return None;
        }
        let mut fields: Vec<(Rc<str>, Held)> = Vec::new();
        let mut whole = Value::default();
        for arg in &given.args {
            self.whole_environment(arg, given.span);
            whole.add_names(&arg.names);
            whole.flows.add_all(&arg.flows);
            fields.extend(arg.fields.iter().flat_map(|fields| fields.iter().cloned()));
            for pair in arg.items.iter().flat_map(|items| items.iter()) {
                if let Some([key, value, ..]) = pair.items.as_ref().map(|pair| pair.as_slice()) {
                    let key = key.as_known().unwrap_or(ANY_KEY);
                    fields.push((key.into(), Rc::clone(value)));
                }
            }
        }
        fields.extend(given.named.iter().map(|(name, held, _)| (name.as_str().into(), Rc::clone(held))));
        if let Some(maker) = given.args.first().filter(|first| !first.functions.is_empty() && first.fields.is_none()) {
            // What is not there is made by a function.
            let gives = self.called(maker, None, &Given { span: given.span, ..Given::default() });
            fields.push((ANY_KEY.into(), gives));
        }
        for (name, held) in fields.iter().take(ITEMS) {
            self.scopes.set_attribute(name, held);
        }
        let mut object = Value { names: whole.names, ..Value::object(fields) };
        object.flows.add_all(&whole.flows);
        Some(Rc::new(object))
    }

    /// What a function gives that works on functions, attributes or lists; nothing for others.
    pub(super) fn by_name(&mut self, name: &str, given: &Given) -> Option<Value> {
        let first = given.args.first();
        match name {
            "operator.attrgetter" | "operator.methodcaller" | "operator.itemgetter" => {
                let rest = given.args.iter().cloned().chain(given.named.iter().map(|(_, held, _)| Rc::clone(held)));
                let mut getter = Value::list(rest.collect());
                getter.add_name(match name {
                    "operator.attrgetter" => "(attribute of)",
                    "operator.methodcaller" => "(method of)",
                    _ => "(item of)",
                });
                Some(getter)
            }
            "functools.partial" | "functools.partialmethod" => {
                let named = given.named.iter().map(|(name, held, _)| (name.clone(), Rc::clone(held))).collect();
                Some(super::call::bound(first?, given.args.iter().skip(1).cloned().collect(), named))
            }
            "next" | "random.choice" | "copy.copy" | "copy.deepcopy" | "anext" | "secrets.choice" => {
                let first = first?;
                let mut any = first.any_item();
                if name.starts_with("copy") {
                    any = Value { made: Made::default(), ..Value::clone(first) };
                } else if first.items.is_none() && first.fields.is_none() {
                    // What is not known to be a list may be one that hands out itself.
                    any.add_names(&first.names);
                    any.functions.clone_from(&first.functions);
                }
                Some(given.args.get(1).map_or(any.clone(), |default| any.or(default)))
            }
            // Texts that are added up one after the other.
            "functools.reduce"
                if first.is_some_and(|sum| ADDS.iter().any(|name| sum.has(name))) && given.args.len() < 4 =>
            {
                let items = given.args.get(1)?.items.as_ref()?.iter();
                let texts: Option<Vec<&str>> =
                    given.args.get(2).into_iter().chain(items).map(|item| item.as_known()).collect();
                Some(Value { making: Making::Built, ..Value::known(texts?.concat()) })
            }
            // A path from the project on, where it says so.
            "url.pathToFileURL" => {
                let relative = |text: &Text| text.known_start().starts_with(|first: char| first.is_alphanumeric());
                let mut url = Value::named("(file-url)");
                for path in &first?.texts {
                    let mut text = Text::known(if relative(path) { "./" } else { "" });
                    text.append(path.clone());
                    url.texts.push(text);
                }
                url.flows.add_all(&first?.flows);
                Some(url)
            }
            "zip" => {
                let lists: Vec<_> = given.args.iter().filter_map(|arg| arg.items.as_ref()).collect();
                let length = lists.iter().map(|list| list.len()).min().filter(|_| lists.len() == given.args.len())?;
                let row = |at: usize| lists.iter().filter_map(|list| list.get(at).cloned()).collect();
                Some(Value::list((0..length).map(|at| Rc::new(Value::list(row(at)))).collect()))
            }
            "enumerate" => {
                let items = first?.items.as_ref()?;
                let row = |(at, item): (usize, &Held)| {
                    let number = Value::number(i64::try_from(at).unwrap_or_default());
                    Rc::new(Value::list(vec![Rc::new(number), Rc::clone(item)]))
                };
                Some(Value::list(items.iter().enumerate().map(row).collect()))
            }
            "range" => {
                let number = |at: usize| given.args.get(at).and_then(|arg| arg.number.filter(|_| !arg.many));
                let (start, end) = match given.args.len() {
                    1 => (0, number(0)?),
                    _ => (number(0)?, number(1)?),
                };
                let step = if given.args.len() > 2 { number(2)? } else { 1 };
                if step == 0 || (end.checked_sub(start)? / step) > i64::try_from(ITEMS).ok()? {
                    // Any of them, each in turn.
                    let any = Value { many: true, ..Value::text(Text::hole(Hole::Value)) };
                    return (step != 0).then(|| Value::list(vec![Rc::new(any)]));
                }
                let next = |at: &i64| at.checked_add(step).filter(|at| if step > 0 { *at < end } else { *at > end });
                let first = (if step > 0 { start < end } else { start > end }).then_some(start);
                let all = std::iter::successors(first, next).map(|at| Rc::new(Value::number(at)));
                Some(Value::list(all.take(ITEMS).collect()))
            }
            "Proxy" => {
                let target = first?;
                // A file of the project's own is data or functions of its own.
                let own = |name: &Rc<str>| name.starts_with("./") || name.starts_with("../");
                let brought = |name: &Rc<str>| self.imported.contains(name) && !own(name);
                if target.names.iter().any(|name| self.book.is_guarded(name) || brought(name)) {
                    // What a name means is what a function of the program says.
                    self.trick(Trick::ByBuiltName, given.span);
                }
                let mut proxy = Value::clone(target);
                if let Some(read) = given.args.get(1).and_then(|handler| handler.field("get")) {
                    let any = Value::default();
                    let args = vec![Rc::clone(target), Rc::new(any), Rc::clone(target)];
                    let gives = self.called(&read, None, &Given { args, span: given.span, ..Given::default() });
                    proxy.add(&Value::object(vec![(ANY_KEY.into(), gives)]));
                }
                Some(proxy)
            }
            serves if is_route(serves) => {
                // Whoever asks says what is in it: from elsewhere, and typed by somebody.
                let mut request = Value::default();
                request.flows.add(&Flow::Network);
                request.flows.add(&Flow::Input);
                self.serves(Rc::new(request), given);
                None
            }
            "tempfile.mkstemp" => {
                let path = Value::known("/tmp/temporary");
                let mut file = path.clone();
                file.add_name("open()");
                Some(Value::list(vec![Rc::new(file), Rc::new(path)]))
            }
            "ctypes.util.find_library" => Some(Value::known(format!("lib{}.so", first?.as_known()?))),
            "logging.config.dictConfig" => {
                if first.is_some_and(|config| self.makes_by_name(config, 4)) {
                    self.trick(Trick::ByBuiltName, given.span);
                }
                None
            }
            adds if adds.starts_with("argparse.") && adds.ends_with(".add_argument") => {
                self.option(given);
                None
            }
            "psutil.process_iter" => {
                let mut one = Value::named("psutil.Process()");
                one.flows.add(&Flow::File { path: "/proc".to_owned() });
                Some(Value::list(vec![Rc::new(one)]))
            }
            // A function of that name is the program of that name.
            program if program.starts_with("sh.") || program.starts_with(PLUMBED) => {
                let name = program.strip_prefix(PLUMBED).or_else(|| program.rsplit('.').next());
                let program = Rc::new(Value::known(name.unwrap_or(program)));
                let place = Place { span: given.span, literal: None };
                self.program(Some((program, place)), Some(given.args.clone()), given);
                None
            }
            "shutil.copyfileobj" | "stream.pipeline" | "stream.promises.pipeline" => {
                let to = given.args.iter().skip(1).rfind(|arg| !arg.texts.is_empty() || goes_out(arg));
                self.piped(first, to, given);
                None
            }
            "psutil.pids" => {
                let mut one = Value::default();
                one.flows.add(&Flow::File { path: "/proc".to_owned() });
                Some(Value::list(vec![Rc::new(one)]))
            }
            "Object.assign" => {
                let all = given.args.iter().fold(Value::default(), |all, arg| all.or(arg));
                Some(all)
            }
            "Object.entries" | "Object.values" if first.is_some_and(|all| self.is_the_environment(all)) => {
                Some(self.variables(first?, name.ends_with("entries"), given.span))
            }
            "Object.values" => {
                Some(Value::list(first?.fields.as_ref()?.iter().map(|(_, held)| Rc::clone(held)).collect()))
            }
            "Object.getOwnPropertyDescriptor" | "Reflect.getOwnPropertyDescriptor" => {
                let found = self.index_of(first?, given.args.get(1)?, given.span);
                Some(Value::object(vec![("value".into(), Rc::clone(&found)), ("get".into(), found)]))
            }
            "list" | "set" | "frozenset" | "collections.deque" | "Set" | "Array" if given.args.is_empty() => {
                Some(Value::list(Vec::new()))
            }
            "Array.from" if given.args.get(1).is_some_and(|each| !each.functions.is_empty()) => {
                let any = Rc::new(first?.any_item());
                let place = Place { span: given.span, literal: None };
                let each = Given { args: vec![any], places: vec![place], span: given.span, ..Given::default() };
                let gives = self.called(given.args.get(1)?, None, &each);
                Some(Value::list(vec![gives]))
            }
            // What it is called with next is what it gives.
            "functools.wraps" => Some(Value::default()),
            "dataclasses.field" | "attr.ib" | "attrs.field" => {
                let named =
                    |name: &str| given.named.iter().find(|(known, _, _)| known == name).map(|(_, held, _)| held);
                match named("default_factory").or_else(|| named("factory")) {
                    Some(maker) => {
                        let gives = self.called(maker, None, &Given { span: given.span, ..Given::default() });
                        Some(Value::clone(&gives))
                    }
                    None => named("default").map(|default| Value::clone(default)),
                }
            }
            "Promise" => {
                let resolve = Rc::new(Value::named("(resolve)"));
                for number in &first?.functions {
                    self.enter_function(*number, &[(0, Rc::clone(&resolve)), (1, Rc::clone(&resolve))]);
                }
                self.scopes.attribute(RESOLVED).map(|held| Value::clone(held))
            }
            "(resolve)" => {
                let brought = first?;
                let function =
                    Value { names: brought.names.clone(), functions: brought.functions.clone(), ..Value::default() };
                if !brought.flows.abilities().is_empty() || !brought.functions.is_empty() {
                    self.scopes.set_attribute(RESOLVED, &Rc::new(function));
                }
                None
            }
            "importlib.util.find_spec" | "importlib.find_loader" | "pkgutil.find_loader" => {
                let mut found = Value::default();
                if let Some(module) = first?.as_known().filter(|module| self.book.is_guarded(module)) {
                    found.flows.add_ability(&module.into());
                }
                Some(found)
            }
            "unittest.mock.patch" | "mock.patch" => {
                self.replace(first?.as_known()?, given.args.get(1)?);
                None
            }
            "unittest.mock.patch.object" | "mock.patch.object" => {
                let key = given.args.get(1)?.as_known()?.to_owned();
                for name in &first?.names {
                    self.replace(&format!("{name}.{key}"), given.args.get(2)?);
                }
                None
            }
            "Object.entries" => fold::method(first?, "items", &[]),
            "Object.keys" => fold::method(first?, "keys", &[]),
            "os.walk" | "os.fwalk" => {
                // Whatever lies in whatever folder below it.
                let anything = |pattern: &str| {
                    let mut text = Text::default();
                    text.push(Piece::Pattern(pattern.to_owned()));
                    Rc::new(Value::list(vec![Rc::new(Value::text(text))]))
                };
                let folder = Rc::new(Value { texts: first?.texts.clone(), ..Value::default() });
                let row = Value::list(vec![folder, anything("*"), anything("**")]);
                Some(Value::list(vec![Rc::new(row)]))
            }
            "os.listdir" | "fs.readdirSync" | "fs.promises.readdir" => {
                let mut text = Text::default();
                text.push(Piece::Pattern("*".to_owned()));
                let mut one = match given.args.get(1).filter(|options| options.field("withFileTypes").is_some()) {
                    Some(options) => super::below::entries(first?, options, text),
                    None => Value::text(text),
                };
                // The folders there are the processes.
                if first.and_then(|folder| folder.as_known()).is_some_and(|path| path.trim_end_matches('/') == "/proc")
                {
                    one.flows.add(&Flow::File { path: "/proc".to_owned() });
                }
                Some(Value::list(vec![Rc::new(one)]))
            }
            "os.scandir" => {
                let mut below = fold::path(&[Rc::clone(first?), Rc::new(Value::known("*"))]);
                below.add_name("pathlib.Path()");
                Some(Value::list(vec![Rc::new(below)]))
            }
            "pathlib.Path().iterdir" | "pathlib.Path().glob" | "pathlib.Path().rglob" => {
                let pattern = first.and_then(|pattern| pattern.as_known()).unwrap_or("*").to_owned();
                let receiver = Value { texts: given.receiver.as_ref()?.texts.clone(), ..Value::default() };
                let mut text = Text::default();
                text.push(if pattern.contains(['*', '?', '[']) {
                    Piece::Pattern(pattern)
                } else {
                    Piece::Known(pattern)
                });
                let mut below = fold::path(&[Rc::new(receiver), Rc::new(Value::text(text))]);
                below.add_name("pathlib.Path()");
                Some(Value::list(vec![Rc::new(below)]))
            }
            _ => self.by_library(name, given),
        }
    }

    /// What is asked for on the command line has a default: an attribute of what is given back holds that.
    fn option(&mut self, given: &Given) {
        let named = |name: &str| given.named.iter().find(|(known, _, _)| known == name).map(|(_, held, _)| held);
        let Some(default) = named("default") else { return };
        let words = || given.args.iter().filter_map(|arg| arg.as_known());
        let name = named("dest")
            .and_then(|dest| dest.as_known())
            .or_else(|| words().find(|word| word.starts_with("--")))
            .or_else(|| words().next());
        if let Some(name) = name {
            let name = name.trim_start_matches('-').replace('-', "_");
            self.scopes.set_attribute(&name, default);
        }
    }

    /// Whether settings name a function by a text that has the library make something by calling it, and that acts.
    fn makes_by_name(&self, config: &Value, deep: usize) -> bool {
        let Some(fields) = config.fields.as_ref().filter(|_| deep > 0) else { return false };
        fields.iter().any(|(key, held)| {
            let acts = |name: &str| {
                let name = self.book.canonical(name);
                let module = name.split('.').next().unwrap_or(name);
                self.book.is_guarded(module) || self.book.roles(name).is_some_and(super::act::acts)
            };
            (&**key == "()" && held.texts.iter().filter_map(Text::as_known).any(acts))
                || self.makes_by_name(held, deep - 1)
        })
    }

    /// `local["rm"]`, and `rm["-rf", "/x"]`: programs by their names, and with their words.
    pub(super) fn plumbed(&mut self, value: &Value, key: &Value, span: Span) -> Option<Held> {
        if value.has("plumbum.local") || value.has("plumbum.local.cmd") {
            return Some(Rc::new(Value::named(&format!("{PLUMBED}{}", key.as_known()?))));
        }
        let name = value.names.iter().find_map(|name| name.strip_prefix(PLUMBED))?;
        let program = Rc::new(Value::known(name));
        let words = key.items.as_ref().map_or_else(|| vec![Rc::new(key.clone())], |words| (**words).clone());
        let given = Given { span, ..Given::default() };
        self.program(Some((program, Place { span, literal: None })), Some(words), &given);
        Some(Rc::new(value.clone()))
    }

    /// A call of what `operator.attrgetter` and its kin give.
    pub(super) fn getter(&mut self, callee: &Value, given: &Given) -> Option<Held> {
        let words = callee.items.as_ref()?;
        let object = given.args.first()?;
        if callee.has("(item of)") {
            return Some(self.index_of(object, words.first()?, given.span));
        }
        if !callee.has("(attribute of)") && !callee.has("(method of)") {
            return None;
        }
        let mut held = Rc::clone(object);
        for part in words.first()?.as_known()?.split('.') {
            held = self.member_of(&held, part, given.span);
        }
        if callee.has("(attribute of)") {
            return Some(held);
        }
        let args: Vec<Held> = words.iter().skip(1).cloned().collect();
        let places = args.iter().map(|_| Place { span: given.span, literal: None }).collect();
        let given = Given { args, places, receiver: Some(Rc::clone(object)), span: given.span, named: Vec::new() };
        Some(self.called(&held, None, &given))
    }

    /// A function that is written where it is handed over is called for each item of a known list: texts are taken apart so.
    pub(super) fn each_item(
        &mut self,
        callee: &Value,
        receiver: Option<&Held>,
        method: Option<&str>,
        args: &[Arg],
    ) -> Option<Held> {
        let written = |arg: &Arg| matches!(arg.value.kind, Kind::Function(_));
        let (list, function, start) = match (method, args) {
            (_, [function, list, rest @ ..]) if callee.has("functools.reduce") && written(function) => {
                (self.value(&list.value), function, rest.first())
            }
            (Some("map" | "flatMap" | "reduce" | "forEach"), [function, rest @ ..]) if written(function) => {
                (receiver.cloned()?, function, rest.first())
            }
            (None, [function, list]) if callee.has("map") && written(function) => {
                (self.value(&list.value), function, None)
            }
            _ => return None,
        };
        let letters = list.as_known().filter(|_| method.is_none()).map(lists::as_letters);
        let items = list.items.as_ref().or(letters.as_ref())?;
        let known = |item: &Held| item.as_known().is_some() || item.number.is_some();
        // Of a few things that are not wholly known, each is taken by itself where that is what is given back.
        let few = items.len() <= FEW && matches!(method, Some("map" | "flatMap"));
        if items.len() > EACH || !(few || items.iter().all(known)) || self.unrolled > 1 {
            return None;
        }
        let items = Rc::clone(items);
        let callback = self.value(&function.value);
        let number = *callback.functions.first()?;
        let reduces = method == Some("reduce") || callee.has("functools.reduce");
        self.unrolled += 1;
        let mut all = Vec::with_capacity(items.len());
        let mut sum = start.map(|start| self.value(&start.value));
        for (at, item) in items.iter().enumerate() {
            let index = Rc::new(Value::number(i64::try_from(at).unwrap_or_default()));
            let params = match (&sum, reduces) {
                (Some(sum), true) => vec![(0, Rc::clone(sum)), (1, Rc::clone(item)), (2, index)],
                (None, true) => {
                    sum = Some(Rc::clone(item));
                    continue;
                }
                (_, false) => vec![(0, Rc::clone(item)), (1, index)],
            };
            let gives = self.enter_function(number, &params).unwrap_or_default();
            if reduces {
                sum = Some(gives);
            } else {
                all.push(gives);
            }
        }
        self.unrolled -= 1;
        Some(if reduces { sum.unwrap_or_default() } else { Rc::new(Value::list(all)) })
    }
}
