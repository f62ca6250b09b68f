// What search-insights.js does for InstantSearch: report clicks, views and conversions.

import type { Event, FullrankClient } from "fullrank-client";

export interface InsightsClient {
  (method: string, ...args: any[]): any;
  version: string;
}

const ACTIONS: Record<string, string> = {
  clickedObjectIDs: "click",
  viewedObjectIDs: "impression",
  convertedObjectIDs: "conversion",
  purchasedObjectIDs: "purchase",
  addedToCartObjectIDs: "add_to_cart",
};
const TYPES: Record<string, string> = { click: "click", view: "impression", conversion: "conversion" };

export function insights(client: FullrankClient, shown: ReadonlyMap<string, string>): InsightsClient {
  let token = client.options.client_id;
  let changed: ((token?: string) => void) | undefined;

  function report(action: string, payloads: readonly any[]): void {
    const events: Event[] = payloads.flatMap(({ objectIDs = [], queryID, userToken = token }) =>
      objectIDs.map((id: string) => ({
        action_name: action,
        query_id: queryID ?? (action === "impression" ? shown.get(id) : undefined),
        ...(userToken && { client_id: String(userToken) }),
        event_attributes: { object: { object_id: id } },
      })),
    );
    // A page works on if its events are lost.
    if (events.length) client.report(events).catch((error) => console.warn("fullrank: events are lost:", error));
  }

  function call(method: string, ...args: any[]): any {
    const action = ACTIONS[method.replace(/AfterSearch$/, "")];
    if (action) return report(action, args.filter((one) => one?.objectIDs));
    if (method === "sendEvents") {
      // Other types report how InstantSearch itself is used.
      for (const event of args[0]) if (TYPES[event.eventType]) report(TYPES[event.eventType]!, [event]);
    } else if (method === "setUserToken") {
      token = args[0] === undefined ? undefined : String(args[0]);
      changed?.(token);
    } else if (method === "getUserToken") {
      args[1]?.(null, token);
      return token;
    } else if (method === "onUserTokenChange") {
      changed = args[0];
      if (args[1]?.immediate) changed?.(token);
    }
  }

  // InstantSearch asks which calls the client knows: this version needs no init.
  return Object.assign(call, { version: "2.17.2" });
}
