//! Captures the log of a gateway.

use std::sync::{Arc, Mutex};

/// Warnings logged by this thread while the value lives: messages and fields, except addresses.
pub(crate) struct CapturedLog {
    warnings: Arc<Mutex<Vec<String>>>,
    _guard: tracing::subscriber::DefaultGuard,
    _other_dispatch: tracing::Dispatch,
}

impl CapturedLog {
    pub(crate) fn begin() -> Self {
        let warnings: Arc<Mutex<Vec<String>>> = Arc::default();
        // `tracing` caches per callsite whether it is enabled. With a single dispatcher, it asks only the thread that
        // reaches the callsite first, which may be another test without a subscriber, and the callsite stays disabled
        // here. With two dispatchers, it asks both.
        let _other_dispatch = tracing::Dispatch::new(CapturingSubscriber(Arc::default()));
        let _guard = tracing::subscriber::set_default(CapturingSubscriber(warnings.clone()));
        Self { warnings, _guard, _other_dispatch }
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        self.warnings.lock().unwrap().clone()
    }
}

struct CapturingSubscriber(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for CapturingSubscriber {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = String::new();
        event.record(&mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| match field.name() {
            "message" => line.insert_str(0, &format!("{value:?}")),
            "address" => {}
            name => line += &format!(" {name}={value:?}"),
        });
        self.0.lock().unwrap().push(line);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}
