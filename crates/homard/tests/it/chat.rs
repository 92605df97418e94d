//! `homard chat` in a real terminal.

mod approvals;
mod own_gateway;

use std::process::Command;

use rustix::process::Signal;

use crate::{
    home::{Home, skip, until},
    processes::slow_model,
};

/// A terminal multiplexer with one window, in which the chat runs.
struct Tmux<'a> {
    home: &'a Home,
    /// Its socket. A server that ends removes its own.
    socket: &'static str,
}

impl<'a> Tmux<'a> {
    /// Starts the chat. `None` if there is no tmux on this machine.
    fn start(home: &'a Home, socket: &'static str, args: &[&str]) -> Option<Self> {
        let tmux = Self { home, socket };
        if Command::new("tmux").arg("-V").output().is_err() {
            return None;
        }
        let command = home.command(args);
        let mut words = vec!["env".to_owned(), "-i".to_owned(), "TERM=screen".to_owned(), "LANG=C.UTF-8".to_owned()];
        let variables = command.get_envs().filter_map(|(name, value)| Some((name.to_str()?, value?.to_str()?)));
        // The gateway of the state directory, also if it comes back on another port.
        let variables = variables.filter(|(name, _)| *name != "HOMARD_GATEWAY_PORT");
        words.extend(variables.map(|(name, value)| format!("{name}='{value}'")));
        words.push(format!("'{}'", env!("CARGO_BIN_EXE_homard")));
        words.extend(args.iter().map(|arg| (*arg).to_owned()));
        let script = format!("cd '{}'; {}; echo \"left with $?\"; cat", home.work().display(), words.join(" "));
        tmux.run(&["-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "40", &script]);
        Some(tmux)
    }

    fn run(&self, args: &[&str]) -> String {
        let socket = self.home.work().join(self.socket);
        let output = Command::new("tmux").arg("-S").arg(socket).args(args).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the scrollback and the screen.
    fn everything(&self) -> String {
        self.run(&["capture-pane", "-p", "-S", "-"])
    }

    fn shows(&self, text: &str) {
        until(&format!("{text:?} is shown"), || self.everything().contains(text));
    }

    fn types(&self, text: &str, key: &str) {
        self.run(&["send-keys", "-l", text]);
        self.shows(text);
        self.run(&["send-keys", key]);
    }
}

impl Drop for Tmux<'_> {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_survives_a_killed_gateway() {
    let fixture = slow_model().await;
    let home = &fixture.home;
    let gateway = home.gateway();
    let Some(tmux) = Tmux::start(home, "tmux", &["chat"]) else {
        return skip("the chat in a terminal", "tmux is not installed");
    };
    tmux.shows("Ask anything");
    tmux.types("hello there", "Enter");
    tmux.shows("quick");
    tmux.types("SLOW", "Enter");
    tmux.shows("Running exec");
    tmux.types("typed during the run", "Tab");
    tmux.shows("queued");
    gateway.process.signal(Signal::KILL);
    gateway.end();
    tmux.shows("no connection");
    // Queued: a steered message would become part of the resumed run if the chat is back before that run ends.
    tmux.types("typed without a gateway", "Tab");
    tmux.shows("not sent yet");
    let restarted = home.gateway();
    tmux.shows("was in");
    until("all messages are answered", || tmux.everything().matches("quick").count() == 3);
    until("nothing waits any more", || !tmux.everything().contains("not sent yet"));
    let everything = tmux.everything();
    for once in ["› hello there", "› SLOW", "› typed during the run", "› typed without a gateway", "was in"] {
        assert_eq!(everything.matches(once).count(), 1, "{once}\n{everything}");
    }
    // The chat works in the directory in which it was started.
    let directory = home.work().canonicalize().unwrap();
    assert!(everything.contains(&format!("was in {}", directory.display())), "{everything}");
    tmux.run(&["send-keys", "C-d"]);
    tmux.shows("left with 0");
    drop(restarted);
}

#[test]
fn a_chat_without_a_gateway_starts_its_own_and_is_continued() {
    let home = Home::new();
    let Some(tmux) = Tmux::start(&home, "tmux-1", &[]) else {
        return skip("the chat without a gateway", "tmux is not installed");
    };
    // The first time, the setup is offered.
    tmux.shows("Set one up now? [Y/n]");
    tmux.run(&["send-keys", "n", "Enter"]);
    tmux.shows("one was started for this chat");
    tmux.types("What files are here?", "Enter");
    tmux.shows("✓ ls");
    tmux.run(&["send-keys", "C-d"]);
    tmux.shows("left with 0");
    drop(tmux);
    let Some(tmux) = Tmux::start(&home, "tmux-2", &["chat", "-c"]) else { return };
    tmux.shows("› What files are here?");
    tmux.shows("✓ ls");
    tmux.run(&["send-keys", "C-d"]);
    tmux.shows("left with 0");
}

#[test]
fn without_a_terminal_there_is_no_chat() {
    let home = Home::new();
    let chat = home.run(&["chat"]);
    assert_eq!(chat.code, Some(2), "{chat:?}");
    assert!(chat.stderr.contains("homard agent -m TEXT"), "{chat:?}");
    let bare = home.run(&[]);
    assert_eq!(bare.code, Some(2), "{bare:?}");
    assert!(bare.stderr.contains("Usage: homard <COMMAND>"), "{bare:?}");
}
