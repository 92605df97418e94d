fn run() {
    // TODO: run
}
