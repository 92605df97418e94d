//! R7: kills while a command with effects is about to run, runs, and has run.
//!
//! `GRID=all` kills five hundred times.

use std::fs;

use crate::{
    chaos::gateway::{GatewayUnderTest, is_long, messages_of, run, run_signal_in, transcripts},
    home::Home,
};

/// When the gateway is killed.
#[derive(Debug, Clone, Copy)]
enum KillMoment {
    /// As soon as the run is accepted.
    Accepted,
    /// While the command runs.
    AtWork,
    /// After the command has ended; its result may be stored or not.
    Ending,
}

#[tokio::test]
async fn r7_a_command_runs_at_most_once_whenever_the_gateway_dies() {
    let home = Home::new();
    let workspace = home.state().join("workspace");
    let wait_for_signal = run_signal_in(&workspace);
    let rounds = if is_long() { 500 } else { 12 };
    let mut unknown = 0;
    for round in 0..rounds {
        let moment = [KillMoment::Accepted, KillMoment::AtWork, KillMoment::Ending][round % 3];
        let (key, count) = (format!("k{round}"), format!("count-{round}"));
        let command = match moment {
            KillMoment::Accepted => format!("echo once >> {count}"),
            KillMoment::AtWork => {
                format!("echo once >> {count}; echo ready > doorbell; until [ -e go-{round} ]; do sleep 0.01; done")
            }
            KillMoment::Ending => format!("echo once >> {count}; echo ready > doorbell"),
        };
        let mut gateway = GatewayUnderTest::begin(&home, &[]).await;
        gateway.accept(&run(&key, &format!("s{round}"), &format!("run `{command}`"))).await;
        match moment {
            KillMoment::Accepted => {}
            KillMoment::AtWork | KillMoment::Ending => assert_eq!(wait_for_signal(), "ready\n"),
        }
        gateway.kill();
        fs::write(workspace.join(format!("go-{round}")), "").unwrap();
        let mut gateway = GatewayUnderTest::begin(&home, &[]).await;
        assert_eq!(gateway.wait(&key).await["status"], "ok", "round {round}");
        gateway.kill();
        let effects = fs::read_to_string(workspace.join(&count)).unwrap_or_default();
        match moment {
            // The kill may have hit the start of the command; then the outcome is unknown.
            KillMoment::Accepted => assert!(["", "once\n"].contains(&effects.as_str()), "round {round}: {effects:?}"),
            KillMoment::AtWork | KillMoment::Ending => assert_eq!(effects, "once\n", "round {round}"),
        }
    }
    let sessions = transcripts(&home);
    assert_eq!(sessions.len(), rounds);
    for messages in &sessions {
        let results = messages_of("toolResult", messages);
        assert_eq!(results.len(), 1, "{results:?}");
        unknown += usize::from(results[0]["isError"] == true);
    }
    assert!(unknown >= rounds / 3, "all that died at work are not known");
    println!("{rounds} kills: no effect came twice; {unknown} were told as unknown");
}
