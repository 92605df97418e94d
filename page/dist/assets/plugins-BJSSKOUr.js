import{b as t,E as a}from"./ui-CT8jbBbe.js";function i(){return t(a,{title:"plugins"})}export{i as default};
