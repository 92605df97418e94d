//! `homard completions`: scripts that shells accept.

use std::{fs, process::Command};

use crate::home::Home;

#[test]
fn each_shell_gets_a_script_that_knows_the_commands() {
    let home = Home::new();
    for word in ["completions", "completion"] {
        for (shell, marker) in
            [("bash", "complete -F _homard"), ("zsh", "#compdef homard"), ("fish", "complete -c homard")]
        {
            let output = home.run(&[word, shell]);
            assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
            assert!(output.stdout.contains(marker) && output.stdout.contains("doctor"), "{shell}");
        }
    }
    assert_eq!(home.run(&["completions", "abacus"]).code, Some(2));
    assert!(!home.state().exists());
}

#[test]
fn bash_completes_with_the_script() {
    let home = Home::new();
    let script = home.work().join("homard.bash");
    fs::write(&script, home.run(&["completions", "bash"]).stdout).unwrap();
    let bash_script = "source ./homard.bash; COMP_WORDS=(homard doct); COMP_CWORD=1; _homard homard doct homard; echo ${COMPREPLY[@]}";
    let output = Command::new("bash").args(["--norc", "-c", bash_script]).current_dir(home.work()).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), "doctor");
}
