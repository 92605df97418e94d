import{b as t,E as a}from"./ui-CT8jbBbe.js";function n(){return t(a,{title:"channels"})}export{n as default};
