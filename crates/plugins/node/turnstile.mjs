// How many questions plugins may have open at the gateway. The rest waits here, in order, so that one that asks
// without end does not make the gateway refuse the others.

/** At once. The gateway bears 32; some are left for what the host itself has to fetch. */
const AT_ONCE = 24;
/** In line. */
const WAITING = 1000;

/** Lets so many through at a time. */
export class Turnstile {
  #free = AT_ONCE;
  #waiting = [];

  /** Runs `work` when it is its turn. */
  async pass(work) {
    await this.#enter();
    try {
      return await work();
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#free += 1;
      else next();
    }
  }

  #enter() {
    if (this.#free > 0) {
      this.#free -= 1;
      return undefined;
    }
    if (this.#waiting.length >= WAITING) throw new Error(`${WAITING} requests to the gateway are already waiting; wait for their responses`);
    return new Promise((resolve) => this.#waiting.push(resolve));
  }
}
