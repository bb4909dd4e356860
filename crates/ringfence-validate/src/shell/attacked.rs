//! Ways around that were open once, each line with an ordinary twin that has to pass.

use std::time::{Duration, Instant};

use super::twins::{passes_in, twins};
use crate::{Limits, Subject, Surroundings, analyse};

#[test]
fn a_program_under_another_name_is_that_program() {
    twins(&[
        ("cp /bin/rm tools/x; tools/x -rf ~", "cp scripts/build tools/x; tools/x -rf ~"),
        ("ln -s /bin/rm x && ./x -rf /usr", "ln -s scripts/tidy x && ./x -rf out"),
        ("ln /usr/bin/shred w; ./w -u notes.txt", "ln target/app w; ./w -u notes.txt"),
        ("install -m 755 /bin/rm t/x; t/x -rf /usr", "install -m 755 target/app t/x; t/x -rf out"),
        ("mv /bin/rm x; ./x -rf /usr", "mv build/app x; ./x --version"),
        ("cat /bin/rm > x; chmod +x x; ./x -rf /usr", "cat head.sh tail.sh > x; chmod +x x; ./x -rf out"),
        ("dd if=/bin/rm of=x; ./x -rf /usr", "dd if=build/app of=x; ./x"),
        ("tee x < /bin/rm; ./x -rf /usr", "tee x < build/app; ./x"),
        ("ln -s /bin b; b/rm -rf /usr", "ln -s scripts b; b/rm -rf /usr"),
        ("cp -r /bin b; b/rm -rf /usr", "cp -r scripts b; b/run -rf out"),
        ("cp /bin/rm /bin/ls t; t/rm -rf /usr", "cp /bin/rm /bin/ls t; t/ls -la"),
        ("cp /bin/rm b/ls; PATH=$PWD/b:$PATH; ls -rf ~", "export PATH=$PWD/b:$PATH; ls -la"),
        ("cp /bin/rm b/x; PATH=$PATH:$PWD/b; x -rf ~", "cp target/x b/x; PATH=$PATH:$PWD/b; x -rf ~"),
        ("cp \"$(which rm)\" x; ./x -rf /usr", "cp \"$(which python3)\" x; ./x --version"),
        (
            "$(command -v python3 || command -v python) -c 'import os; os.system(\"rm -rf ~\")'",
            "$(command -v python3 || command -v python) -m venv .venv",
        ),
        ("$(command -v rm) -rf /usr", "$(command -v python3) -m pytest"),
        ("ln -s /bin/busybox rm; ./rm -rf /usr", "ln -s /bin/busybox ls; ./ls -la"),
        ("cp /bin/sh x; echo 'rm -rf /usr' | ./x", "cp /bin/sh x; echo 'make test' | ./x"),
        ("cp /bin/rm x; cd sub; ../x -rf /usr", "cp /bin/ls x; cd sub; ../x -la"),
        ("if a; then cp /bin/rm x; else cp /bin/ls x; fi; ./x -rf /usr", "if a; then cp /bin/ls x; fi; ./x -la"),
        ("cp /bin/rm x && mv x y && ./y -rf /usr", "cp /bin/ls x && mv x y && ./y -la"),
        ("cp /bin/r? x; ./x -rf /usr", "cp bin/r* out/; out/run"),
    ]);
}

#[test]
fn what_a_coprocess_is_sent_in_pieces_is_one_text() {
    twins(&[
        (
            "coproc sh; printf 'rm -rf ' >&${COPROC[1]}; printf '/usr\\n' >&${COPROC[1]}",
            "coproc sh; printf 'make ' >&${COPROC[1]}; printf 'test\\n' >&${COPROC[1]}",
        ),
        (
            "coproc sh; exec 7>&${COPROC[1]}; printf 'rm -r' >&7; printf 'f /usr\\n' >&${COPROC[1]}",
            "coproc bc; exec 7>&${COPROC[1]}; printf '1+' >&7; printf '1\\n' >&${COPROC[1]}",
        ),
        ("coproc sh; echo 'rm -rf ~' > /dev/fd/${COPROC[1]}", "coproc sh; echo 'make' > /dev/fd/${COPROC[1]}"),
        ("coproc sh; echo 'rm -rf ~' | tee /dev/fd/${COPROC[1]}", "coproc sh; echo make | tee /dev/fd/${COPROC[1]}"),
        ("coproc sh; echo 'rm -rf ~' > /proc/self/fd/${COPROC[1]}", "coproc cat; echo x > /dev/fd/${COPROC[1]}"),
        ("coproc sh; echo 'rm -rf ~' >&60", "coproc sh; echo 'make' >&60"),
        ("coproc sh; exec >&${COPROC[1]}; echo 'rm -rf ~'", "coproc cat; exec >&${COPROC[1]}; echo hello"),
        ("coproc sh; echo 'rm -rf ~' 2>&${COPROC[1]} >&2", "coproc sh; echo 'make' 2>&${COPROC[1]} >&2"),
        (
            "coproc sh; if a; then printf 'rm -rf ' >&${COPROC[1]}; else printf 'ls ' >&${COPROC[1]}; fi; printf '/usr\\n' >&${COPROC[1]}",
            "coproc sh; if a; then printf 'cat ' >&${COPROC[1]}; else printf 'ls ' >&${COPROC[1]}; fi; printf 'src\\n' >&${COPROC[1]}",
        ),
        (
            "if a; then coproc A { cat; }; else coproc A { sh; }; fi; echo 'rm -rf ~' >&${A[1]}",
            "if a; then coproc A { cat; }; else coproc A { sh; }; fi; echo 'make' >&${A[1]}",
        ),
        (
            "coproc cat; echo 'rm -rf ~' >&${COPROC[1]}; sh <&${COPROC[0]}",
            "coproc cat; echo 'make' >&${COPROC[1]}; sh <&${COPROC[0]}",
        ),
        ("echo 'rm -rf ~' > >(sh)", "echo 'hello' > >(cat)"),
        ("exec 3> >(sh); echo 'rm -rf ~' >&3", "exec 3> >(tee log); echo 'hello' >&3"),
        ("echo 'rm -rf ~' | tee >(sh) > /dev/null", "echo hello | tee >(wc -l) > /dev/null"),
    ]);
}

#[test]
fn where_exec_leads_input_and_output_holds_for_all_that_follows() {
    twins(&[
        ("exec >x.sh; echo 'rm -rf ~'; exec >/dev/tty; sh x.sh", "exec >x.sh; echo make; exec >/dev/tty; sh x.sh"),
        (
            "exec > x.sh; printf 'rm -rf '; printf '/usr'; bash x.sh",
            "exec > x.sh; printf 'make '; printf 'test'; bash x.sh",
        ),
        ("exec <<< 'rm -rf ~'; sh", "exec <<< 'make'; sh"),
        ("exec 3>x.sh; echo 'rm -rf ~' > /dev/fd/3; sh x.sh", "exec 3>x.sh; echo make > /dev/fd/3; sh x.sh"),
        ("echo 'rm -rf ~' 2>x.sh >&2; sh x.sh", "echo make 2>x.sh >&2; sh x.sh"),
        ("ls 3>e; ( echo 'rm -rf ~' >&3 ) 3>&1 | sh", "ls 3>e; ( echo make >&3 ) 3>&1 | sh"),
        ("exec > log; x=$(echo 'rm -rf ~'); $x", "exec > log; x=$(echo ls); $x"),
        ("exec > log; echo 'rm -rf ~' | sh", "exec > log; echo ls | sh; { echo a; } > b; sh scripts/run"),
    ]);
}

#[test]
fn two_files_with_made_up_names_from_one_function_are_two() {
    twins(&[
        (
            "a= b=; mk() { mktemp; }; a=$(mk); b=$(mk); echo 'rm -rf ~' > \"$a\"; echo ls > \"$b\"; sh \"$a\"",
            "a= b=; mk() { mktemp; }; a=$(mk); b=$(mk); echo 'rm -rf ~' > \"$a\"; echo ls > \"$b\"; sh \"$b\"",
        ),
        (
            "a= b=; for n in a b; do printf -v $n %s $(mktemp); done; mk() { mktemp -d; }; a=$(mk); b=$(mk); echo 'rm -rf ~' > $a/x; echo ls > $b/x; . $a/x",
            "mk() { mktemp -d; }; a=$(mk); b=$(mk); echo 'make' > $a/x; echo ls > $b/x; . $a/x",
        ),
    ]);
}

#[test]
fn a_place_of_an_array_is_set_by_whatever_sets_it() {
    twins(&[
        ("a=(build b); printf -v 'a[0]' /usr; rm -rf ${a[0]}", "a=(x b); printf -v 'a[0]' build; rm -rf ${a[0]}"),
        ("a=(build b); printf -v a[0] /usr; rm -rf \"${a[@]}\"", "a=(x b); printf -v a[0] build; rm -rf \"${a[@]}\""),
        ("a=(build); read 'a[0]' <<< /usr; rm -rf $a", "a=(x); read 'a[0]' <<< build; rm -rf $a"),
        ("read -ra w <<< 'rm -rf /usr'; \"${w[@]}\"", "read -ra w <<< 'make -j4 test'; \"${w[@]}\""),
        ("IFS=, read -ra w <<< 'rm,-rf,/usr'; \"${w[@]}\"", "IFS=, read -ra w <<< 'ls,-la,src'; \"${w[@]}\""),
        ("mapfile -t w <<< $'rm\\n-rf\\n/usr'; \"${w[@]}\"", "mapfile -t w <<< $'ls\\n-la\\nsrc'; \"${w[@]}\""),
        ("a=(/usr b); declare 'a[1]=build'; rm -rf $a", "a=(out b); declare 'a[1]=build'; rm -rf $a"),
        ("a=(build /usr); unset 'a[0]'; rm -rf \"$a\"/*", "a=(build out); rm -rf \"$a\"/*"),
        ("a=(build /usr); rm -rf \"${a[@]:1}\"", "a=(/usr build); rm -rf \"${a[@]:1}\""),
        ("a=(build /usr); rm -rf ${a[@]:1:1}", "a=(/usr build /etc); rm -rf ${a[@]:1:1}"),
        ("a=(build /usrx); rm -rf \"${a[@]%x}\"", "a=(build outx); rm -rf \"${a[@]%x}\""),
        ("set -- build /usr; rm -rf \"${@:2}\"", "set -- /usr build; rm -rf \"${@:2}\""),
        ("f() { \"${@:2}\"; }; f x rm -rf /usr", "f() { \"${@:2}\"; }; f x ls -la src"),
    ]);
}

#[test]
fn a_name_that_refers_to_another_variable_is_that_variable() {
    twins(&[
        ("a=build; declare -n r=a; r=/usr; rm -rf $a", "a=x; declare -n r=a; r=build; rm -rf $a"),
        ("a=/usr; declare -n r=a; rm -rf $r", "a=build; declare -n r=a; rm -rf $r"),
        (
            "a=(build b); declare -n r=a; r=(/usr); rm -rf \"${a[@]}\"",
            "a=(x); declare -n r=a; r=(b); rm -rf \"${a[@]}\"",
        ),
        (
            "a=(build b); declare -n r='a[0]'; r=/usr; rm -rf ${a[0]}",
            "a=(build b); declare -n r=c; r=/usr; rm -rf ${a[0]}",
        ),
        (
            "a=(build /usr); declare -n r=a; r[0]=b; rm -rf \"${a[@]}\"",
            "a=(x c); declare -n r=a; r[0]=b; rm -rf \"${a[@]}\"",
        ),
        (
            "declare -n r=a; b=build; for r in b; do r=/usr; done; rm -rf $b",
            "b=build; for r in b; do r=/usr; done; rm -rf $b",
        ),
        ("f() { local -n o=$1; o=/usr; }; v=build; f v; rm -rf $v", "f() { local -n o=$1; o=b; }; v=x; f v; rm -rf $v"),
        (
            "f() { local -n o=$1; :; }; o=/usr; v=b; f v; rm -rf $o",
            "f() { local -n o=$1; :; }; o=b; v=/usr; f v; rm -rf $o",
        ),
        ("r=/usr; if a; then declare -n r=a; fi; a=build; rm -rf $r", "r=b; [ -n \"$X\" ] && echo x; rm -rf $r"),
        ("declare -n r=a; unset -n r; r=/usr; a=build; rm -rf $r", "declare -n r=a; a=build; rm -rf $r"),
    ]);
}

#[test]
fn what_is_reckoned_or_names_a_place_runs_what_stands_in_its_index() {
    twins(&[
        ("x='a[$(rm -rf ~)]'; echo $((x))", "x='a[1]'; echo $((x))"),
        ("x='a[$(rm -rf ~)]'; [[ $x -eq 1 ]]", "x='[1]'; [[ $x == '[1]' ]]"),
        ("x='a[$(rm -rf ~)]'; let y=x", "x=1; let y=x+1"),
        ("[[ -v 'x[$(rm -rf ~)]' ]]", "[[ -v 'x[0]' ]]"),
        ("test -v 'x[`rm -rf ~`]'", "test -v x"),
        ("read 'a[$(rm -rf ~)]' <<< x", "read 'a[0]' <<< x"),
        ("printf -v 'a[$(rm -rf ~)]' x", "printf -v 'a[1]' x"),
        ("unset 'a[$(rm -rf ~)]'", "unset 'a[0]'"),
        ("declare 'a[$(rm -rf ~)]=1'", "declare 'a[0]=1'"),
    ]);
}

#[test]
fn what_printf_cuts_or_takes_for_a_date_is_not_known() {
    twins(&[
        ("$(printf '%.2s' rmxx) -rf /usr", "$(printf '%s' ls) -la"),
        ("$(printf '%(rm)T') -rf /usr", "printf '%(%Y)T\\n' -1"),
        ("rm -rf $(printf '%.4s' /usrx)", "rm -rf out/$(printf '%s' x)"),
    ]);
}

#[test]
fn lines_that_wait_for_somebody_are_read() {
    twins(&[
        ("alias sudo='sudo rm -rf /;'", "alias ll='ls -la'"),
        ("complete -C 'rm -rf ~' ls", "complete -W 'start stop' service"),
        ("bind -x '\"\\C-l\": rm -rf ~'", "bind -x '\"\\C-l\": clear'"),
        ("BASH_ALIASES[x]='rm -rf /usr'; x", "declare -A m; m[x]='rm -rf /usr'; echo ok"),
        ("npm pkg set scripts.postinstall='rm -rf ~' && npm i", "npm pkg set scripts.lint='eslint .' && npm i"),
    ]);
}

#[test]
fn commands_in_options_of_tools_are_commands() {
    twins(&[
        ("make CC='rm -rf ~;'", "make CC=clang CFLAGS='-O2 (x'"),
        ("make 'X=$(shell rm -rf ~)'", "make 'X=$(shell git rev-parse HEAD)'"),
        ("MAKEFLAGS='--eval=x:;rm -rf ~' make x", "MAKEFLAGS=-j4 make x"),
        ("printf 'a:\\n\\trm -rf ~\\n' > Makefile && make", "printf 'a:\\n\\tgo build\\n' > Makefile && make"),
        ("awk 'BEGIN{c=\"rm -rf /usr\"; system(c)}'", "awk 'BEGIN{c=\"a b\"; print c}'"),
        ("awk -v c='rm -rf /usr' 'BEGIN{system(c)}'", "awk -v c='rm -rf /usr' 'BEGIN{print c}'"),
        ("awk -f <(echo 'BEGIN{system(\"rm -rf ~\")}')", "awk -f <(echo 'BEGIN{print 1}')"),
        ("sed -f <(echo '1e rm -rf ~') x", "sed -f <(echo 's/a/b/') x"),
        ("perl <<< 'system(\"rm -rf ~\")'", "perl <<< 'print 1'"),
        ("emacs --batch --eval '(shell-command \"rm -rf ~\")'", "emacs --batch --eval '(message \"a\")'"),
        ("git -c protocol.ext.allow=always clone 'ext::sh -c rm% -rf% ~'", "git clone https://github.com/a/b"),
        ("git grep -O'rm -rf ~' x", "git grep -n x"),
        ("npm exec -c 'rm -rf ~'", "npm exec -c 'eslint .'"),
        ("yarn exec 'rm -rf ~'", "yarn exec eslint ."),
        ("ssh -F <(echo 'ProxyCommand rm -rf ~') h", "ssh -F ssh.conf h uptime"),
        ("go build -toolexec='rm -rf ~' ./...", "go build -o bin/app ./..."),
        ("go test -exec 'rm -rf ~' ./...", "go test -run X ./..."),
        ("strace -o '|rm -rf ~' ls", "strace -o trace.txt ls"),
        ("LESS='+!rm -rf ~' less x", "LESS=-R less x"),
        ("ftp -n <<< '!rm -rf ~'", "bc <<< '2+2'"),
        ("gdb --eval-command='shell rm -rf ~' -batch", "gdb --eval-command=run -batch ./app"),
        ("watch -x rm -rf ~", "watch -d ls"),
        ("script -q /dev/null rm -rf /usr", "script -q test.log npm test"),
        ("ansible all -a 'rm -rf /usr'", "ansible all -m ping"),
        ("tar -xf x --one-top-level=/usr", "tar -xf x --one-top-level=out"),
        ("ln -sf /dev/null /etc/resolv.conf", "ln -sf ../hosts hosts"),
    ]);
}

#[test]
fn a_home_is_a_home_though_the_work_is_done_there() {
    let at = |workspace: &str| Surroundings {
        directory: workspace.to_owned(),
        workspaces: vec![workspace.to_owned()],
        home: "/home/user".to_owned(),
    };
    for workspace in ["/home/user", "/home"] {
        let here = at(workspace);
        for line in [
            "rm -rf ~",
            "rm -rf \"$HOME\"",
            "rm -rf /home/user",
            "rm -rf ~/*",
            "rm -rf ~/Documents",
            "rm -rf $HOME/projects",
            "rm -rf .",
            "rm -rf *",
            "cd; rm -rf *",
            "cd ~ && rm -rf projects",
            "find ~ -delete",
            "chmod -R 777 ~",
            "rm -rf /home/user/.ssh",
        ] {
            assert!(!passes_in(line, &here), "{workspace}: {line}");
        }
        for line in ["ls ~", "cat notes.txt", "rm -rf ~/.cache/pip", "rm -rf user/app/build"] {
            assert!(passes_in(line, &here), "{workspace}: {line}");
        }
    }
    assert!(passes_in("rm -rf build node_modules", &at("/home/user")));
    // There it would be the home of somebody else.
    assert!(!passes_in("rm -rf build", &at("/home")));
    let inside = Surroundings {
        directory: "/workspace".to_owned(),
        workspaces: vec!["/workspace".to_owned(), "/home/user".to_owned()],
        home: "/home/user".to_owned(),
    };
    assert!(!passes_in("rm -rf Documents", &inside) && !passes_in("rm -rf .", &inside));
    assert!(passes_in("rm -rf build", &inside));
    let written = "echo 'rm -rf /usr' > ~/x; sh /home/user/x";
    assert!(!passes_in(written, &at("/home/user")));
}

#[test]
fn hostile_sizes_end_soon() {
    let size = 250 * 1024;
    let long = format!("x={}\n", "a".repeat(3000));
    let many = |line: &dyn Fn(usize) -> String| (0..size / line(1).len()).map(line).collect::<String>();
    for text in [
        many(&|index| format!("f{index}() {{ ls; }}\n")),
        long.clone() + &"echo ${x%%*a*a*a*b}\n".repeat(size / 20),
        long + &"echo ${x//a*a*b/c}\n".repeat(size / 19),
        format!("set -- {}\n{}", "a ".repeat(size / 2 - 200), "echo \"$@\"\n".repeat(20)),
        "x=$x$x\n".repeat(size / 7),
        format!("rm {}", "~/a ".repeat(size / 4 - 2)),
        "cd a\n".repeat(size / 5),
        "echo x >>f\n".repeat(size / 11),
        format!("coproc sh\n{}", "echo ls >&${COPROC[1]}\n".repeat(size / 24)),
        many(&|index| format!("cp f{index} f{}\n./f{}\n", index + 1, index + 1)),
        "declare -n r=a\n".repeat(size / 15),
        format!("make -f - <<'E'\n{}\nE\n", "=".repeat(size)),
        format!("make -f - <<'E'\n{}\nE\n", "$(shell ".repeat(size / 9)),
        format!("make -f - <<'E'\nX = {}\nall:\n{}E\n", "a".repeat(size / 5), "\t$(X)\n".repeat(size / 10)),
        format!("echo '{}‹'", "<< ".repeat(size / 3 - 9)),
        format!("cat <<E {}\nE\n", "a ".repeat(size / 2)),
        format!("awk '{}{}'", "\"a\"".repeat(3000), "\" | \" x | ".repeat(size / 15)),
        format!("awk '{}'", "> \"\" ".repeat(size / 40)),
        "t['a'".repeat(60),
        format!("t[{}", "$((".repeat(60)),
        "t['a't['a't['a'; ".repeat(size / 18),
    ] {
        let start = Instant::now();
        analyse(Subject::Shell(&text), &Surroundings::default(), &Limits::default());
        // Without optimisation, on a busy machine: what took minutes is found, and nothing finer.
        let took = start.elapsed();
        assert!(took < Duration::from_secs(20), "{took:?}: {}", text.get(..60).unwrap_or_default());
    }
}
