//! A list to choose from, which typing filters.

/// What is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PickerKind {
    Sessions,
    Models,
    Levels,
    Agents,
}

impl PickerKind {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Sessions => "Continue a session",
            Self::Models => "Choose a model",
            Self::Levels => "Choose a reasoning level",
            Self::Agents => "New session with an agent",
        }
    }
}

/// A row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    /// What is chosen: a session key, a model, a level, an agent id.
    pub(crate) id: String,
    pub(crate) label: String,
    pub(crate) description: String,
}

/// An open list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Picker {
    pub(crate) kind: PickerKind,
    /// `None` until they were loaded.
    pub(crate) choices: Option<Vec<Choice>>,
    pub(crate) filter: String,
    pub(crate) selected: usize,
}

impl Picker {
    pub(crate) fn new(kind: PickerKind) -> Self {
        Self { kind, choices: None, filter: String::new(), selected: 0 }
    }

    /// Returns the rows that match the filter.
    pub(crate) fn matching(&self) -> Vec<&Choice> {
        let words: Vec<_> = self.filter.to_lowercase().split_whitespace().map(str::to_owned).collect();
        let matches = |choice: &&Choice| {
            let text = format!("{} {} {}", choice.id, choice.label, choice.description).to_lowercase();
            words.iter().all(|word| text.contains(word))
        };
        self.choices.iter().flatten().filter(matches).collect()
    }

    /// Moves the selection.
    pub(crate) fn select(&mut self, down: bool) {
        let count = self.matching().len().max(1);
        self.selected = if down { (self.selected + 1) % count } else { (self.selected + count - 1) % count };
    }

    /// Changes the filter.
    pub(crate) fn edit(&mut self, change: impl FnOnce(&mut String)) {
        change(&mut self.filter);
        self.selected = 0;
    }

    /// Returns the selected row.
    pub(crate) fn chosen(&self) -> Option<&Choice> {
        self.matching().get(self.selected).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_filters_the_rows() {
        let choice =
            |id: &str, label: &str| Choice { id: id.to_owned(), label: label.to_owned(), description: String::new() };
        let mut picker = Picker::new(PickerKind::Models);
        assert_eq!(picker.chosen(), None);
        picker.choices = Some(vec![choice("a/one", "One"), choice("b/two", "Two"), choice("b/three", "Three")]);
        picker.select(false);
        assert_eq!(picker.chosen().unwrap().id, "b/three");
        picker.edit(|filter| filter.push_str("B tw"));
        assert_eq!(picker.chosen().unwrap().id, "b/two");
        picker.select(true);
        assert_eq!(picker.chosen().unwrap().id, "b/two");
        picker.edit(|filter| filter.push('x'));
        assert_eq!(picker.chosen(), None);
    }
}
