// Limits concurrent requests of plugins to the gateway. Further ones are queued, so that a plugin that sends
// requests endlessly does not make the gateway reject those of others.

/** Maximum concurrent requests. The gateway accepts 32; the rest is left for the host itself. */
const AT_ONCE = 24;
/** Maximum queued requests. */
const WAITING = 1000;

/** A concurrency limit with a queue. */
export class RequestLimiter {
  #free = AT_ONCE;
  #waiting = [];

  /** Runs `work` as soon as a permit is free. */
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
