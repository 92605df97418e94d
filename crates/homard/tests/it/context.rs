//! What goes into a prompt, where it takes a real binary to see: a log, a start, a user without rights.

use std::{
    fs::{self, File, Permissions},
    io::Write,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
    thread,
};

use serde_json::json;

use crate::{
    home::{Home, Said, said},
    provider::request,
};

#[test]
fn a_workspace_that_is_a_file_is_told_and_the_gateway_answers() {
    let home = Home::new();
    let file = home.work().join("notes");
    fs::write(&file, "mine").unwrap();
    home.configure(&json!({"agents": {"defaults": {"workspace": file}}}).to_string());
    let gateway = home.gateway();
    let health = gateway.run(&["health", "--json"]).json();
    let told = format!(
        "agent main: workspace {path} cannot be made: {path} is a file or a broken link, not a folder; move it away, or \
         set another workspace in the config",
        path = file.display()
    );
    assert_eq!(health["notice"], json!(told));
    let said = gateway.run(&["agent", "-m", "help"]);
    assert!(said.code == Some(0) && said.stdout.starts_with("I am Homard's built-in demo model."), "{said:?}");
    let tool = gateway.run(&["agent", "-m", "Run `pwd`"]);
    assert_eq!(tool.stdout, format!("That did not work: {}: Not a directory (os error 20)\n", file.display()));
    let context = gateway.run(&["agent", "-m", "/context json"]).json();
    assert_eq!(context["injectedWorkspaceFiles"], json!([]));
    assert_eq!(fs::read_to_string(file).unwrap(), "mine");
}

#[test]
fn case_101_a_small_window_answers_with_a_warning() {
    let home = Home::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let provider = json!({
        "baseUrl": format!("http://{}/v1", listener.local_addr().unwrap()), "apiKey": "none",
        "api": "openai-completions", "models": [{"id": "small", "contextWindow": 20_000, "maxTokens": 1_000}],
    });
    let agents = json!({"defaults": {"model": "played/small"}});
    home.configure(&json!({"agents": agents, "models": {"providers": {"played": provider}}}).to_string());
    let answering = thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        request(&stream);
        let answer = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n\
            data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Aye\"},\"finish_reason\":\"stop\"}]}\n\n\
            data: [DONE]\n\n";
        stream.write_all(answer.as_bytes()).unwrap();
    });
    let path = home.work().join("log");
    let gateway = home.gateway_with_log(File::create(&path).unwrap(), "warn");
    let said = gateway.run(&["agent", "-m", "hello"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "Aye\n"), "{}", said.stderr);
    answering.join().unwrap();
    let log = fs::read_to_string(path).unwrap();
    let warned: Vec<_> = log.lines().filter(|line| line.contains("a model with a small context answers")).collect();
    assert!(matches!(&warned[..], [line] if line.contains("20000")), "{log}");
}

/// Runs the binary in a folder as a user to whom permissions apply.
fn as_a_plain_user(folder: &Path, args: &[&str]) -> Said {
    let mut command = if rustix::process::geteuid().is_root() {
        // The binary may be in a folder that only root can enter.
        let program = folder.join("homard");
        if !program.exists() {
            fs::copy(env!("CARGO_BIN_EXE_homard"), &program).unwrap();
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(program);
        command
    } else {
        Command::new(env!("CARGO_BIN_EXE_homard"))
    };
    command.args(args).current_dir(folder).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command.env("HOME", folder).env("HOMARD_STATE_DIR", folder.join("state"));
    said(command)
}

#[test]
fn a_file_that_may_not_be_read_is_told_and_the_run_goes_on() {
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    // The first run makes the workspace.
    let hello = as_a_plain_user(folder.path(), &["agent", "--local", "-m", "help"]);
    assert_eq!(hello.code, Some(0), "{hello:?}");
    let file = folder.path().join("state/workspace/AGENTS.md");
    fs::set_permissions(&file, Permissions::from_mode(0o000)).unwrap();
    let context = as_a_plain_user(folder.path(), &["agent", "--local", "-m", "/context"]);
    let told =
        "\nAGENTS.md cannot be used: it may not be read; give the user that Homard runs as the right to read it\n";
    assert!(context.code == Some(0) && context.stdout.contains(told), "{context:?}");
    let again = as_a_plain_user(folder.path(), &["agent", "--local", "-m", "help"]);
    assert_eq!((again.code, again.stdout), (Some(0), hello.stdout), "{}", again.stderr);
}
